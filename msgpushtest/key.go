package msgpushtest

// AccessKey returns the key that the server accepts. At first it is a random key.
func (s *Server) AccessKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

// ReplaceKey replaces the accepted key. The old key is rejected immediately. ReplaceKey panics if key is
// empty: to reject every key, inject [RejectKey].
func (s *Server) ReplaceKey(key string) {
	if key == "" {
		panic("msgpushtest: ReplaceKey: the key is empty: to reject every key, inject RejectKey().Always()")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replacedKeys[s.key] = true
	s.key = key
}

// checkKey returns a rejection if the server does not accept a key.
func (s *Server) checkKey(key string) *rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" {
		return reject(s.rejectedKeyCode, "the access-key header is missing or empty")
	}
	if key == s.key {
		return nil
	}
	if s.replacedKeys[key] {
		return reject(s.rejectedKeyCode, "the key in the access-key header was replaced")
	}
	return reject(s.rejectedKeyCode,
		"the key in the access-key header is another one: the server has never accepted it")
}
