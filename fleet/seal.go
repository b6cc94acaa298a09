package fleet

import (
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"strings"
)

// sealed is the prefix of an encrypted key in the store. No access key has it.
const sealed = "\x00"

// seal returns the text to store for the key of r. With an AEAD, the text is encrypted, and bound to the
// Redis key and the generation, so that it cannot be copied to another account, or stored again as a newer
// key.
func (s *KeySource) seal(r record) string {
	aead := s.cfg.AEAD
	if aead == nil || r.key == "" {
		return r.key
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return sealed + string(aead.Seal(nonce, nonce, []byte(r.key), s.bound(r.generation)))
}

// bound returns the additional data for the AEAD; see seal.
func (s *KeySource) bound(generation int64) []byte { return fmt.Append(nil, s.store.key, generation) }

// open reverses seal, with AEAD or one of OpenAEADs. A nil one accepts only plain text.
func (s *KeySource) open(text string, generation int64) (string, error) {
	data, isSealed := strings.CutPrefix(text, sealed)
	for _, aead := range append([]cipher.AEAD{s.cfg.AEAD}, s.cfg.OpenAEADs...) {
		acceptsPlain := aead == nil
		if acceptsPlain && !isSealed {
			return data, nil
		}
		if acceptsPlain || !isSealed || len(data) < aead.NonceSize() {
			continue
		}
		nonce, ciphertext := data[:aead.NonceSize()], data[aead.NonceSize():]
		key, err := aead.Open(nil, []byte(nonce), []byte(ciphertext), s.bound(generation))
		if err == nil {
			return string(key), nil
		}
	}
	return "", fmt.Errorf("fleet: the access key in the store was not encrypted with this AEAD or one of OpenAEADs; "+
		"set the same AEAD in all replicas, or delete the Redis key %s", s.store.key)
}
