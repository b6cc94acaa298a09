package call

import (
	"net/http"
	"time"
)

// waitRetryAfter waits, before an attempt, as long as the response to the attempt before requested, or
// the proxy that rejected it. backoff cannot return that wait: go-retryablehttp passes no response to
// it if a proxy has rejected the attempt, or if a Location is malformed.
func (c *Caller) waitRetryAfter(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s := stateOf(req.Context())
		isRequested := s.last != nil && s.last.RequestedWait > 0
		mustWait := isRequested && !s.last.KeyRejected // after a rejected key, another one is sent at once
		if mustWait {
			timer := time.NewTimer(s.last.RequestedWait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-s.Done():
				return nil, contextEnded
			}
		}
		return next.RoundTrip(req)
	})
}
