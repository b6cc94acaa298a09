package msgpushtest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// Respond returns a fault that calls h, which writes the response. It panics if h is nil.
func Respond(h http.HandlerFunc) Fault {
	if h == nil {
		panic("msgpushtest: Respond: the function is nil")
	}
	return Fault{kind: "Respond", respond: func(_ *responder, w http.ResponseWriter, r *http.Request) { h(w, r) }}
}

// Status returns a fault that responds with an HTTP status, from 200 to 599, and no body. Another status
// panics.
func Status(status int) Fault {
	checkStatus("Status", status)
	respond := func(_ *responder, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	return Fault{kind: fmt.Sprintf("Status(%d)", status), respond: respond}
}

// Success returns a fault that responds with the envelope of a success, such as a page with a wrong total,
// or the data of an operation that the server does not know: choose its path with [Fault.For]. If data is
// nil, the envelope has no data member. Success panics if data cannot be encoded to JSON.
func Success(data any) Fault {
	return static("Success", "application/json", mustEncode("Success", success(data)))
}

// ErrorResponse returns a fault that responds with an envelope and HTTP status 200. If data is nil, the
// envelope has no data member. ErrorResponse panics if data cannot be encoded to JSON.
func ErrorResponse(code int, msg string, data any) Fault {
	body := mustEncode("ErrorResponse", envelope{Code: code, Msg: msg, Data: data})
	return static(fmt.Sprintf("ErrorResponse(%d, %q)", code, msg), "application/json", body)
}

// mustEncode returns the JSON of an envelope. It panics if the data of a test cannot be encoded.
func mustEncode(name string, e envelope) string {
	body, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("msgpushtest: %s: the data cannot be encoded to JSON: %v", name, err))
	}
	return string(body)
}

// static returns a fault that responds with a body, and with HTTP status 200 unless WithStatus sets another.
func static(kind, contentType, body string) Fault {
	return Fault{kind: kind, respond: func(_ *responder, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body) // fails if the connection has ended or the status allows no body
	}}
}

// RejectKey returns a fault that rejects any access key, as the server itself rejects a wrong one.
func RejectKey() Fault {
	return Fault{kind: "RejectKey", respond: func(usual *responder, w http.ResponseWriter, _ *http.Request) {
		send(w, envelope{
			Code: usual.server.rejectedKeyCode,
			Msg:  "the key in the access-key header is rejected by a fault",
		})
	}}
}

// Delay returns a fault that delays the usual response by d. It panics if d is negative.
func Delay(d time.Duration) Fault {
	checkDuration("Delay", d)
	respond := func(usual *responder, w http.ResponseWriter, r *http.Request) {
		usual.server.wait(r, d)
		usual.respond(w, r)
	}
	return Fault{kind: fmt.Sprintf("Delay(%v)", d), respond: respond}
}

// HTML returns a fault that responds with an HTML page and HTTP status 200.
func HTML() Fault {
	return static("HTML", "text/html; charset=utf-8",
		"<!DOCTYPE html>\n<html><head><title>Sorry</title></head><body><h1>We will be back soon</h1></body></html>\n")
}

// Endless returns a fault whose body ends when the client ends the request or the server is closed. It sends
// at most 64 KiB a millisecond.
func Endless() Fault {
	return Fault{kind: "Endless", respond: func(usual *responder, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := strings.Repeat("x", 64<<10)
		_, err := io.WriteString(w, `{"code":200,"msg":"`)
		for err == nil {
			usual.server.wait(r, time.Millisecond) // without a wait, time would not pass in a synctest bubble
			_, err = io.WriteString(w, chunk)
		}
	}}
}

// Reset returns a fault that resets the connection before the response. On a reused connection, net/http
// itself resends a GET: the caller does not see that reset. To prevent this, call CloseIdleConnections of
// [Server.HTTPClient] before the request.
func Reset() Fault {
	return Fault{kind: "Reset", respond: func(_ *responder, w http.ResponseWriter, _ *http.Request) { reset(w) }}
}

// Truncate returns a fault that closes the connection in the middle of the body.
func Truncate() Fault {
	return Fault{kind: "Truncate", respond: func(usual *responder, w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		usual.respond(recorder, r)
		body := recorder.Body.Bytes()
		maps.Copy(w.Header(), recorder.Header())
		// When the handler returns, net/http closes the connection, since the body is too short.
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(body[:len(body)/2])
	}}
}

// reset resets the connection of a response, or aborts only the response if the connection cannot be
// hijacked, as with HTTP/2.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		resetConn(conn)
	}
	panic(http.ErrAbortHandler) // nothing more can be written
}

func resetConn(conn net.Conn) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok { // Close of a *tls.Conn does not reset it
		conn = c.NetConn()
	}
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0) // makes Close a reset
	}
	_ = conn.Close()
}
