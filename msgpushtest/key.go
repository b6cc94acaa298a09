package msgpushtest

// An accessKey is the key that a server accepts.
type accessKey struct {
	value    string
	replaced map[string]bool
}

// AccessKey returns the key that the server accepts. At first it is a random key.
func (s *Server) AccessKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key.value
}

// ReplaceKey replaces the accepted key. The old key is rejected immediately. ReplaceKey panics if
// key is empty: to reject every key, inject [RejectKey].
func (s *Server) ReplaceKey(key string) {
	if key == "" {
		panic("msgpushtest: ReplaceKey: the key is empty: to reject every key, inject RejectKey().Always()")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key.replaced == nil {
		s.key.replaced = map[string]bool{}
	}
	s.key.replaced[s.key.value] = true
	s.key.value = key
}

// checkKey returns a rejection if the server does not accept a key.
func (s *Server) checkKey(key string) *rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" {
		return reject(s.rejectedKeyCode, "the access-key header is missing or empty")
	}
	if key == s.key.value {
		return nil
	}
	if s.key.replaced[key] {
		return reject(s.rejectedKeyCode, "the key in the access-key header was replaced")
	}
	return reject(s.rejectedKeyCode,
		"the key in the access-key header is another one: the server has never accepted it")
}
