//go:build !js

package transport

import "net/http"

// roundTripWithoutRedirect calls rt.RoundTrip: an http.Transport follows no redirect on this
// platform.
func roundTripWithoutRedirect(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	return rt.RoundTrip(req)
}
