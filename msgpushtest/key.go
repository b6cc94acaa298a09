package msgpushtest

import "crypto/rand"

// An accessKey is the key that a server accepts.
type accessKey struct {
	value    string // if it is empty, every key is rejected
	lifetime int    // in requests; 0 is unlimited
	uses     int    // requests accepted with value, since SetKeyLifetime
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
	s.key.value, s.key.uses = key, 0
}

// SetKeyLifetime makes access keys expire: after the server has accepted a key n times, it replaces
// the key with a new one, which AccessKey returns. If n is 0, the default, keys do not expire. For
// keys that expire after a time, call [Server.SetAccessKey] from [time.AfterFunc].
func (s *Server) SetKeyLifetime(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key.lifetime, s.key.uses = n, 0
}

// acceptKey reports whether a key is accepted, and counts its use.
func (s *Server) acceptKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" || key != s.key.value {
		return false
	}
	s.key.uses++
	if s.key.uses == s.key.lifetime {
		s.key.value, s.key.uses = newKey(), 0
	}
	return true
}
