package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsPermanentAndDialFailed(t *testing.T) {
	errCable := errors.New("the cable is cut")
	errHost := x509.HostnameError{Certificate: new(x509.Certificate), Host: "push.example.com"}
	op := func(name string, err error) error { return &net.OpError{Op: name, Err: err} }
	record := func(text string) error { return tls.RecordHeaderError{RecordHeader: [5]byte([]byte(text))} }
	proxy := func(status int) error { return &proxyError{status: status} }
	for _, tt := range []struct {
		name                  string
		err                   error
		permanent, dialFailed bool
	}{
		{"connection closed", io.EOF, false, false},
		{"error without a type", errCable, false, false},
		{"failed read", op("read", errCable), false, false},
		{"failed write", op("write", errCable), false, false},
		{"failed dial", op("dial", errCable), false, true},
		{"failed dial of a proxy", op("proxyconnect", op("dial", errCable)), false, true},
		{"failed dial of a SOCKS proxy", op("socks connect", op("dial", errCable)), false, true},

		{"certificate not verified", &tls.CertificateVerificationError{Err: errCable}, true, false},
		{"certificate of an unknown authority", x509.UnknownAuthorityError{}, true, false},
		{"certificate of another host", errHost, true, false},
		{"expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, true, false},
		{"certificate of a proxy not verified", op("proxyconnect", x509.UnknownAuthorityError{}), true, true},
		{"HTTP in place of HTTPS", http.ErrSchemeMismatch, true, false},
		{"HTTP in place of a TLS record", record("HTTP/"), true, false},
		{"another protocol in place of a TLS record", record("SSH-2"), false, false},
		{"unknown host", op("dial", &net.DNSError{IsNotFound: true}), false, true},
		{"name server that fails", op("dial", &net.DNSError{IsTemporary: true}), false, true},
		{"name server that does not respond", op("dial", &net.DNSError{IsTimeout: true}), false, true},

		{"CONNECT rejected with HTTP 403", proxy(403), true, true},
		{"CONNECT rejected with HTTP 407", proxy(407), true, true},
		{"CONNECT accepted with HTTP 201", proxy(201), true, true},
		{"CONNECT rejected with HTTP 408", proxy(408), false, true},
		{"CONNECT rejected with HTTP 429", proxy(429), false, true},
		{"CONNECT rejected with HTTP 501", proxy(501), false, true},
		{"CONNECT rejected with HTTP 599", proxy(599), false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, err := range []error{tt.err, fmt.Errorf("tracing: %w", tt.err)} {
				assert.Equal(t, tt.permanent, IsPermanent(err), "permanent")
				assert.Equal(t, tt.dialFailed, DialFailed(err), "the dial failed")
			}
		})
	}
}
