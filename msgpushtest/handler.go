package msgpushtest

import (
	"errors"
	"net/http"
	"net/http/httptest"

	"example.com/msgpush/internal/errs"
)

// HandlerTransport returns a transport that passes each request to a handler in this process. In virtual
// time, the code under test uses it for requests to another server, such as the target of a webhook. It is
// safe for concurrent use if the handler is.
//
// The handler runs in another goroutine, which must have ended when the bubble of virtual time ends. If the
// context of the request ends before, for example by the Timeout of the http.Client, the request fails. So it
// does if the handler panics with [http.ErrAbortHandler]. Any other panic reaches the caller.
func HandlerTransport(handler http.Handler) http.RoundTripper { return handlerTransport{handler} }

type handlerTransport struct{ handler http.Handler }

var errAborted = errors.New("msgpushtest: the handler has aborted the response")

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	forHandler := r.Clone(ctx)
	if r.Body == nil {
		forHandler.Body = http.NoBody // as the request of a server
	}
	if err := ctx.Err(); err != nil {
		_ = forHandler.Body.Close()
		return nil, err
	}
	ended := make(chan handled, 1) // buffered, since the request may have failed before
	go t.serve(forHandler, ended)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case h := <-ended:
		if err := ctx.Err(); err != nil { // perhaps this ended the handler
			return nil, err
		}
		return h.response()
	}
}

// handled is how a handler has ended.
type handled struct {
	resp     *http.Response // nil: it has panicked, or called runtime.Goexit
	panicked *errs.Panic
}

func (t handlerTransport) serve(r *http.Request, ended chan<- handled) {
	var h handled
	defer func() {
		h.panicked = errs.Recovered(recover())
		_ = r.Body.Close()
		ended <- h
	}()
	w := httptest.NewRecorder()
	t.handler.ServeHTTP(w, r)
	h.resp = w.Result()
}

func (h handled) response() (*http.Response, error) {
	switch {
	case h.resp != nil:
		return h.resp, nil
	case h.panicked != nil && !errors.Is(h.panicked, http.ErrAbortHandler):
		panic(h.panicked)
	}
	return nil, errAborted
}
