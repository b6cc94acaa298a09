package msgpushtest

import (
	"net/http"
	"net/http/httptest"
)

// HandlerTransport returns a transport that passes each request to a handler in this process. In virtual
// time, the code under test uses it for requests to another server, such as the target of a webhook. It is
// safe for concurrent use if the handler is.
func HandlerTransport(handler http.Handler) http.RoundTripper { return handlerTransport{handler} }

type handlerTransport struct{ handler http.Handler }

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	forHandler := r.Clone(r.Context())
	if r.Body == nil {
		forHandler.Body = http.NoBody // as the request of a server
	}
	w := httptest.NewRecorder()
	t.handler.ServeHTTP(w, forHandler)
	return w.Result(), nil
}
