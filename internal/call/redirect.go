package call

import (
	"errors"
	"net/http"
	"net/url"
)

// keepRedirect returns a redirect whose Location is malformed as a *redirectError. http.Client
// parses the Location before it calls CheckRedirect, and would drop the response.
func (c *Caller) keepRedirect(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp == nil || resp.StatusCode/100 != 3 {
			return resp, err
		}
		if _, err := req.URL.Parse(resp.Header.Get("Location")); err != nil {
			return nil, &redirectError{resp}
		}
		return resp, nil
	})
}

// A redirectError carries a response past http.Client.
type redirectError struct{ resp *http.Response }

func (*redirectError) Error() string { return "the Location is malformed" }

// unwrapClient returns the response or the error of the chain: http.Client wraps an error in a *url.Error,
// and keepRedirect hides a response in an error.
func unwrapClient(resp *http.Response, err error) (*http.Response, error) {
	if redirect, ok := errors.AsType[*redirectError](err); ok {
		return redirect.resp, nil
	}
	if clientErr, ok := err.(*url.Error); ok { //nolint:errorlint // of http.Client, not of the transport
		return nil, clientErr.Err
	}
	return resp, err
}
