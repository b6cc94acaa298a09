// Package faults lists faults of network connections and the error that each must cause, for the tests of
// this module and of the modules in its directory.
package faults

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"example.com/msgpush/internal/tests/errno"
)

// Limit is the number of bytes to which a client must limit bodies and headers. By default, an endless header
// of [Network] would take 10 MiB.
const Limit = 64 << 10

// A Fault is the behavior of a service on a connection instead of a correct response.
type Fault struct {
	Name string
	// Serve uses a connection from which the request has been read. It returns when the connection must be
	// closed.
	Serve func(net.Conn)
	// Want is the error of a call whose requests all meet the fault.
	Want Failure
}

// ServeHTTP takes over the connection of a request, calls Serve and closes the connection.
func (f Fault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(fmt.Sprintf("faults: the connection cannot be taken over: %v", err))
	}
	defer conn.Close()
	f.Serve(conn)
}

// A Failure is the expected error of a call.
type Failure struct {
	Kind      string // name of the error type, such as APIError
	Transient bool   // the call is retried if it is idempotent
	NotSent   bool   // the call is retried even if it is not idempotent
	Is        error  // wrapped; nil: any
	Text      string // part of the error text
}

// Check returns an error unless err has the kind, the wrapped error and the text of f. It does not check
// Transient and NotSent.
func (f Failure) Check(err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("want a %s, got no error", f.Kind)
	case fmt.Sprintf("%T", err) != "*msgpush."+f.Kind:
		return fmt.Errorf("want a %s, got a %T: %w", f.Kind, err, err)
	case f.Is != nil && !errors.Is(err, f.Is):
		return fmt.Errorf("want an error that wraps %q, got: %w", f.Is.Error(), err)
	case !strings.Contains(err.Error(), f.Text):
		return fmt.Errorf("want an error with the text %q, got: %w", f.Text, err)
	}
	return nil
}

// Network returns faults of connections and malformed responses. Some contain key, which no error text may
// show.
func Network(key string) []Fault {
	lost := func(is error) Failure { return Failure{Kind: "RequestError", Transient: true, Is: is} }
	broken := func(text string) Failure { return Failure{Kind: "RequestError", Transient: true, Text: text} }
	truncated := func(is error, bytes int) Failure {
		text := fmt.Sprintf("the JSON ends too early, after %d bytes", bytes)
		return Failure{Kind: "DecodeError", Transient: true, Is: is, Text: text}
	}
	tooLarge := Failure{Kind: "RequestError", Text: fmt.Sprintf("the limit is %d bytes", Limit)}
	permanent := func(text string) Failure { return Failure{Kind: "APIError", Text: text} }
	transient := func(text string) Failure { return Failure{Kind: "APIError", Transient: true, Text: text} }
	return []Fault{
		{
			Name:  "connection closed before the header",
			Serve: Write(""),
			Want:  lost(io.EOF),
		},
		{
			Name:  "connection reset before the header",
			Serve: reset(""),
			Want:  lost(errno.ConnReset),
		},
		{
			Name:  "connection closed in the protocol version",
			Serve: Write("HT"),
			Want:  lost(nil),
		},
		{
			Name:  "connection closed in the status line",
			Serve: Write("HTTP/1.1 2"),
			Want:  lost(nil),
		},
		{
			Name:  "connection closed in the header",
			Serve: Write("HTTP/1.1 200 OK\r\nContent-"),
			Want:  lost(nil),
		},
		{
			Name:  "connection closed after the header",
			Serve: Write(OK),
			Want:  lost(io.ErrUnexpectedEOF),
		},
		{
			Name:  "connection closed before the body",
			Serve: Write(OK + "Content-Length: 100\r\n\r\n"),
			Want:  lost(io.ErrUnexpectedEOF),
		},
		{
			Name:  "connection closed mid-body",
			Serve: Write(OK + "Content-Length: 100\r\n\r\n{\"code\":200,"),
			Want:  lost(io.ErrUnexpectedEOF),
		},
		{
			Name:  "connection reset mid-body",
			Serve: reset(OK + "Content-Length: 100\r\n\r\n{"),
			Want:  broken("reading the response from"),
		},
		{
			Name:  "chunked body without a last chunk",
			Serve: Write(OK + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"cod\r\n"),
			Want:  lost(io.ErrUnexpectedEOF),
		},
		{
			Name:  "chunked body cut in a chunk",
			Serve: Write(OK + "Transfer-Encoding: chunked\r\n\r\n500\r\n{\"cod"),
			Want:  lost(io.ErrUnexpectedEOF),
		},
		{
			Name:  "gzip body cut",
			Serve: Write(OK + "Content-Encoding: gzip\r\nConnection: close\r\n\r\n\x1f\x8b\x08\x00"),
			Want:  lost(io.ErrUnexpectedEOF),
		},

		{
			Name:  "truncated JSON framed as complete",
			Serve: Write(OK10 + `{"code":200,"data":{"list":[{"id":1},`),
			Want:  truncated(io.ErrUnexpectedEOF, 37),
		},
		{
			Name:  "cut literal framed as complete",
			Serve: Write(OK10 + `{"code":200,"data":tru`),
			Want:  truncated(io.ErrUnexpectedEOF, 22),
		},
		{
			Name:  "cut escape framed as complete",
			Serve: Write(OK10 + `{"code":200,"msg":"\u12`),
			Want:  truncated(io.ErrUnexpectedEOF, 23),
		},
		{
			Name:  "empty body framed as complete",
			Serve: Write(OK10),
			Want:  truncated(io.EOF, 0),
		},
		{
			Name:  "empty body with Content-Length",
			Serve: Write(OK + "Content-Length: 0\r\nConnection: close\r\n\r\n"),
			Want:  truncated(io.EOF, 0),
		},
		{
			Name:  "HTML",
			Serve: Write(OK10 + "<html>"),
			Want:  Failure{Kind: "DecodeError", Text: "found invalid JSON"},
		},

		{
			Name:  "endless body",
			Serve: flood(OK+"\r\n", strings.Repeat(" ", 4096)),
			Want:  tooLarge,
		},
		{
			Name:  "endless chunks",
			Serve: flood(OK+"Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("5\r\n{\"cod\r\n", 400)),
			Want:  tooLarge,
		},
		{
			Name:  "endless header",
			Serve: flood(OK, "X-More: "+strings.Repeat("x", 4096)+"\r\n"),
			Want:  broken("exceeded"),
		},

		{
			Name:  "not HTTP",
			Serve: Write("SSH-2.0-OpenSSH_9.2\r\n" + strings.Repeat("garbage ", 5_000) + "\r\n\r\n"),
			Want:  broken("malformed HTTP"),
		},
		{
			Name:  "malformed header with the key",
			Serve: Write("HTTP/1.1 200 OK\r\naccess-key " + key + "\r\n\r\n"),
			Want:  broken("malformed"),
		},
		{
			Name:  "malformed status with the key",
			Serve: Write("HTTP/1.1 " + key + "\r\n\r\n"),
			Want:  broken("malformed HTTP"),
		},
		{
			Name:  "malformed Content-Length with the key",
			Serve: Write(OK + "Content-Length: " + key + "\r\n\r\n"),
			Want:  broken("bad Content-Length"),
		},
		{
			Name:  "malformed chunks",
			Serve: Write(OK + "Transfer-Encoding: chunked\r\n\r\nhello\r\nworld\r\n"),
			Want:  broken("chunk"),
		},
		{
			Name:  "malformed gzip",
			Serve: Write(OK + "Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{\"code\":200}"),
			Want:  Failure{Kind: "RequestError", Transient: true, Is: gzip.ErrHeader},
		},
		{
			Name:  "protocol switched",
			Serve: Stall("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
			Want:  permanent("HTTP 101"),
		},

		{
			Name:  "permanent status, connection closed mid-body",
			Serve: Write("HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nno"),
			Want:  permanent("the body is not quoted: its end is missing"),
		},
		{
			Name:  "permanent status, connection reset mid-body",
			Serve: reset("HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{\"code\":1,"),
			Want:  permanent("HTTP 403"),
		},
		{
			Name:  "permanent status, malformed gzip",
			Serve: Write("HTTP/1.1 404 Not Found\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"),
			Want:  permanent("HTTP 404"),
		},
		{
			Name:  "permanent status, endless body",
			Serve: flood("HTTP/1.1 400 Bad Request\r\n\r\n", strings.Repeat("x", 4096)),
			Want:  permanent("HTTP 400"),
		},
		{
			Name:  "transient status, connection reset mid-body",
			Serve: reset("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\nbusy"),
			Want:  transient("HTTP 503"),
		},
		{
			Name:  "transient status, endless body",
			Serve: flood("HTTP/1.1 502 Bad Gateway\r\n\r\n", strings.Repeat("x", 4096)),
			Want:  transient("HTTP 502"),
		},
	}
}

// OK and OK10 begin a response. The header of OK is not complete. The body of OK10 ends with the connection.
const (
	OK   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	OK10 = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
)

// Write returns a function that sends text.
func Write(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// Stall returns a function that sends text and then waits until the client closes the connection.
func Stall(text string) func(net.Conn) {
	return func(c net.Conn) {
		Write(text)(c)
		_, _ = io.Copy(io.Discard, c)
	}
}

// reset returns a function that sends text and makes closing the connection a reset.
func reset(text string) func(net.Conn) {
	return func(c net.Conn) {
		Write(text)(c)
		_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
	}
}

// flood returns a function that sends text and then repeats more until the client closes the connection.
func flood(text, more string) func(net.Conn) {
	return func(c net.Conn) {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = io.WriteString(c, more)
		}
	}
}
