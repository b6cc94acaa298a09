package call

import (
	"net/http"
	"slices"
)

// chain returns the transport of the retry loop. A request passes the steps from top to bottom, and
// its response or error passes them from bottom to top. The order guarantees that
//
//   - the wait before a retry ends before the call takes a slot of the rate limiter;
//   - the waits for the access key and for the rate limiter are not part of an attempt, and do not
//     use up its timeout;
//   - the header has the key that authorize got last;
//   - the timeout of an attempt includes reading the body.
//
// What follows an attempt is decided outside of the chain, by checkRetry.
func (c *Caller) chain() http.RoundTripper {
	return through(c.Transport,
		c.keepRedirect,
		c.wait,
		c.authorize,
		c.setHeader,
		c.attemptTimeout,
		c.readBody,
	)
}

// A step returns a RoundTripper that does something before or after next.RoundTrip.
type step func(next http.RoundTripper) http.RoundTripper

func through(transport http.RoundTripper, steps ...step) http.RoundTripper {
	for _, s := range slices.Backward(steps) {
		transport = s(transport)
	}
	return transport
}

// A roundTripFunc is a function used as a RoundTripper. It has no method CloseIdleConnections:
// go-retryablehttp would call it after each call that fails, also if the connections are fine.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
