//go:build !js

package msgpush

import "net/http"

// roundTrip sends a request through a transport, which follows no redirect.
func roundTrip(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	return rt.RoundTrip(req)
}
