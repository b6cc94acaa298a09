package msgpush

import (
	"net/http"

	"example.com/msgpush/internal/transport"
)

// NewTransport returns a new transport with the settings of the one that the clients of this
// package share by default. Wrap it or change its settings, and pass it to [WithHTTPClient]. Call
// its CloseIdleConnections when it is no longer needed. In browsers, it uses fetch. Compared with
// [http.DefaultTransport], it
//
//   - keeps an idle connection for each of many concurrent callers,
//   - closes an HTTP/2 connection after 10 s of silence, 5 s of them after a ping,
//   - reports the status with which a proxy rejects CONNECT, such as 407, and
//   - closes a connection that was idle for 55 s, before balancers with a timeout of 60 s do.
func NewTransport() *http.Transport { return transport.New() }
