package call

import (
	"errors"
	"net/http"
	"net/url"
)

// keepRedirect returns a redirect whose Location is malformed as a *redirectError. http.Client parses the
// Location before it calls CheckRedirect, and would drop the response.
func keepRedirect(req *http.Request, resp *http.Response) (*http.Response, error) {
	if resp == nil || resp.StatusCode/100 != 3 {
		return resp, nil
	}
	if _, err := req.URL.Parse(resp.Header.Get("Location")); err != nil {
		return nil, &redirectError{resp}
	}
	return resp, nil
}

// A redirectError carries a response past http.Client.
type redirectError struct{ resp *http.Response }

func (*redirectError) Error() string { return "the Location is malformed" }

// unwrapClient returns the response or the error of an attempt: http.Client wraps an error in a *url.Error,
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
