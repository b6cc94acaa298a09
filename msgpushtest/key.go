package msgpushtest

import "crypto/rand"

// An accessKey is the key that a server accepts.
type accessKey struct {
	value    string // if it is empty, every key is rejected
	lifetime int    // in requests; 0 is unlimited
	uses     int    // requests accepted with value, since SetKeyLifetime
	replaced map[string]bool
}

// replace makes value the accepted key.
func (k *accessKey) replace(value string) {
	if k.replaced == nil {
		k.replaced = map[string]bool{}
	}
	k.replaced[k.value] = true
	k.value, k.uses = value, 0
}

func newKey() string { return "test-" + rand.Text() }

// AccessKey returns the key that the server accepts. At first it is a random key.
func (s *Server) AccessKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key.value
}

// SetAccessKey replaces the accepted key. The old key is rejected immediately. If key is empty,
// every key is rejected.
func (s *Server) SetAccessKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key.replace(key)
}

// SetKeyLifetime makes access keys expire: after the server has accepted a key n times, it replaces
// the key with a new one, which AccessKey returns. If n is 0, the default, keys do not expire. For
// keys that expire after a time, call [Server.SetAccessKey] from [time.AfterFunc].
func (s *Server) SetKeyLifetime(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key.lifetime, s.key.uses = n, 0
}

// checkKey counts the use of a key that is accepted, and returns a rejection of another one.
func (s *Server) checkKey(key string) *rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" {
		return reject(CodeAccessKey, "the access-key header is missing or empty")
	}
	if key == s.key.value {
		s.key.uses++
		if s.key.uses == s.key.lifetime {
			s.key.replace(newKey())
		}
		return nil
	}
	if s.key.replaced[key] {
		return reject(CodeAccessKey, "the key in the access-key header was replaced")
	}
	return reject(CodeAccessKey, "the key in the access-key header is another one: the server has never accepted it")
}
