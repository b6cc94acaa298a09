package call

import (
	"maps"
	"net/http"
)

// setHeader sends a copy of the request with its own header. Attempts share neither the map nor
// its values: a transport may still read the header of an attempt that has failed, and may change
// the header of the current attempt.
func (c *Caller) setHeader(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s := stateOf(req.Context())
		header := c.newHeader(s)
		maps.Copy(header, req.Header) // the cookies of the jar
		req = req.WithContext(req.Context())
		req.Header = header
		return next.RoundTrip(req)
	})
}

func (c *Caller) newHeader(s *state) http.Header {
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
	return h
}

// prepareRetry removes the cookies of the attempt before: http.Client adds the cookies of the jar
// to the header of each attempt. The old header is not changed, since a transport may still read
// it.
func prepareRetry(req *http.Request) error {
	req.Header = http.Header{}
	return nil
}
