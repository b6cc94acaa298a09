//go:build js

package transport

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall/js"
)

// fetchEnabled repeats two conditions of net/http, which uses the fetch function of the host if
// there is one. In a process named node, net/http uses a network inside the process instead.
var fetchEnabled = !js.Global().Get("fetch").IsUndefined() && !isNode()

// isNode reports whether process.argv0 begins with "node".
func isNode() bool {
	process := js.Global().Get("process")
	return process.Type() == js.TypeObject && strings.HasPrefix(process.Get("argv0").String(), "node")
}

// usesFetch reports whether a transport may use fetch. An *http.Transport does unless it has a dial
// function. A transport of another type may wrap one that does.
func usesFetch(rt http.RoundTripper) bool {
	if !fetchEnabled {
		return false
	}
	t, ok := rt.(*http.Transport)
	if !ok {
		return true
	}
	dials := t.DialContext != nil || t.DialTLSContext != nil
	dialsWithoutContext := t.Dial != nil || t.DialTLS != nil
	return !dials && !dialsWithoutContext
}

// roundTripWithoutRedirect calls rt.RoundTrip. By default, fetch would follow a redirect, and send
// the access key to another host.
func roundTripWithoutRedirect(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	if !usesFetch(rt) {
		return rt.RoundTrip(req)
	}
	req.Header["js.fetch:redirect"] = []string{"manual"} // an option of fetch: net/http removes it from the header
	resp, err := rt.RoundTrip(req)
	if err != nil || resp == nil {
		return resp, err
	}
	if resp.StatusCode == 0 { // a browser hides the status and the header of a redirect
		resp.Body.Close()
		return nil, errHiddenRedirect
	}
	resp.Body = &fetchBody{resp.Body, req.Context()}
	return resp, nil
}

// A fetchBody is the body of a response of fetch. Reading it fails when the context of the request
// ends, which net/http ignores once it has the header.
type fetchBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // of the one request
}

func (b *fetchBody) Read(p []byte) (int, error) {
	stop := context.AfterFunc(b.ctx, func() { _ = b.Close() }) // Read then returns io.EOF
	defer stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.ctx.Err() != nil {
		err = b.ctx.Err()
	}
	return n, err
}
