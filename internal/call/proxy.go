package call

import (
	"net/http"
	"time"
)

// waitForProxy waits, before an attempt, as long as a proxy requested when it rejected the attempt
// before. backoff cannot return that wait, since go-retryablehttp passes neither the error nor the
// context to it.
func (c *Caller) waitForProxy(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s := stateOf(req.Context())
		if s.last != nil && s.last.Kind == NoResponse { // RequestedWait is 0 unless a proxy set it
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
