package call

import (
	"maps"
	"net/http"
)

// newHeader returns the header of an attempt, with the cookies that http.Client has set. Attempts share
// neither the map nor its values: a transport may still read the header of an attempt that has failed, and
// may change the header of the current attempt.
func (c *Caller) newHeader(s *state, cookies http.Header) http.Header {
	const json = "application/json"
	values := []string{s.key, c.UserAgent, json, json} // one allocation for all values
	h := http.Header{
		"Access-Key": values[0:1:1],
		"User-Agent": values[1:2:2],
		"Accept":     values[2:3:3],
	}
	if s.spec.Method == http.MethodPost || s.spec.Body != nil {
		h["Content-Type"] = values[3:4:4]
	}
	if s.spec.Idempotent { // net/http does not send it, and resends a request on a connection that was closed meanwhile
		h["Idempotency-Key"] = []string{}
	}
	maps.Copy(h, cookies)
	return h
}
