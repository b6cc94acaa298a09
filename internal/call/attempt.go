package call

import (
	"net/http"
	"time"

	"example.com/msgpush/internal/transport"
)

// attempt sends a request, and reads the response. Its timeout includes reading the body, but not the waits
// before: see prepare.
func (c *Caller) attempt(s *state, req *http.Request) (*http.Response, error) {
	s.beginAttempt()
	c.closeIdleAfterTimeout()
	ctx, cancel := c.attemptContext(s)
	defer cancel() // the body has been read
	req = req.WithContext(ctx)
	req.Header = c.newHeader(s, req.Header)
	resp, err := c.send(s, req)
	if err != nil {
		return nil, c.attemptErr(ctx, s, err)
	}
	return keepRedirect(req, resp)
}

// beginAttempt counts an attempt, and forgets the response of the one before.
func (s *state) beginAttempt() {
	s.attempts++
	s.earlierMayBeProcessed = s.earlierMayBeProcessed || s.mayBeProcessed
	s.attemptState = attemptState{start: time.Now()}
}

// send sends the request of an attempt, and reads the body of its response.
func (c *Caller) send(s *state, req *http.Request) (*http.Response, error) {
	resp, err := c.Transport.RoundTrip(req)
	s.dialFailed = transport.DialFailed(err) // before attemptErr replaces err
	s.mayBeProcessed = !s.dialFailed
	if err != nil || resp == nil { // http.Client returns an error if both are nil
		return nil, err
	}
	s.resp = resp
	if err := c.readBody(s, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// A roundTripFunc is a function used as a RoundTripper. It has no method CloseIdleConnections:
// go-retryablehttp would call it after each call that fails, also if the connections are fine.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
