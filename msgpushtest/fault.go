package msgpushtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Fault changes the response of a [Server] to one request or, with [Fault.Times] or
// [Fault.Always], to more. The zero Fault is the usual response.
type Fault struct {
	kind       string                                            // such as "Status(503)", for describe
	respond    func(*Server, http.ResponseWriter, *http.Request) // nil: the usual response
	status     int                                               // set by WithStatus, or 0
	header     http.Header
	operations []string // empty: any request
	conditions []func(Request) bool
	always     bool
	times      int // 0 means 1
}

// A queuedFault is an injected fault and counts its uses.
type queuedFault struct {
	Fault
	uses int
}

// For returns a copy of f that applies only to some operations, such as [MPList]; without names, to
// all. An unknown name panics.
func (f Fault) For(operations ...string) Fault {
	for _, name := range operations {
		if !slices.Contains(operationNames(), name) {
			panic(fmt.Sprintf("msgpushtest: Fault.For: %q is not an operation: "+
				"use a constant such as msgpushtest.MailDetail; the operations are %q", name, operationNames()))
		}
	}
	f.operations = slices.Clone(operations)
	return f
}

// operationNames sorts the names, since For prints them when it panics.
func operationNames() []string { return slices.Sorted(maps.Keys(operations)) }

// If returns a copy of f that applies only to requests for which match returns true, such as those
// for page 2. With several conditions, all must match. match is called for one request at a time,
// and must not close the server or send it a request. A nil match panics.
func (f Fault) If(match func(Request) bool) Fault {
	if match == nil {
		panic("msgpushtest: Fault.If: match is nil: give it a function of the request")
	}
	f.conditions = append(slices.Clip(f.conditions), match)
	return f
}

// Always returns a copy of f that applies until [Server.ClearFaults].
func (f Fault) Always() Fault {
	f.always, f.times = true, 0
	return f
}

// Times returns a copy of f that applies to n requests. It panics if n is below 1.
func (f Fault) Times(n int) Fault {
	if n < 1 {
		panic(fmt.Sprintf("msgpushtest: Fault.Times: n is %d, not at least 1", n))
	}
	f.always, f.times = false, n
	return f
}

// WithStatus returns a copy of f with another HTTP status, from 200 to 599.
func (f Fault) WithStatus(status int) Fault {
	checkStatus("Fault.WithStatus", status)
	f.status = status
	return f
}

// checkStatus panics if a status is not from 200 to 599. A status from 100 to 199 is not final or,
// if it is 101, ends HTTP; others are invalid. Below 100 or above 999, net/http would panic, but in
// the server, where the test would not see the panic.
func checkStatus(name string, status int) {
	if status < 200 || status > 599 {
		panic(fmt.Sprintf("msgpushtest: %s: %d is not an HTTP status from 200 to 599", name, status))
	}
}

// WithHeader returns a copy of f that sets a header of the response, such as Retry-After. It panics
// if HTTP does not allow the name or value.
func (f Fault) WithHeader(name, value string) Fault {
	checkHeader("Fault.WithHeader", name, value)
	f.header = maps.Clone(f.header)
	if f.header == nil {
		f.header = http.Header{}
	}
	f.header.Set(name, value)
	return f
}

// checkHeader panics if HTTP does not allow the name of a header, or a character of its value:
// net/http might send something else.
func checkHeader(caller, name, value string) {
	if !headerName.MatchString(name) || !headerValue.MatchString(value) {
		panic(fmt.Sprintf("msgpushtest: %s: HTTP allows no header %q: %q", caller, name, value))
	}
}

var (
	headerName  = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")
	headerValue = regexp.MustCompile(`^[^\x00-\x08\x0a-\x1f\x7f]*$`)
)

func checkWait(caller string, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("msgpushtest: %s: the duration %v is negative", caller, d))
	}
}

// describe returns the text of f in the error about a fault that was used too seldom.
func (f Fault) describe() string {
	text := cmp.Or(f.kind, "Fault{}")
	if f.status != 0 {
		text += fmt.Sprintf(".WithStatus(%d)", f.status)
	}
	text += strings.Repeat(".If(match)", len(f.conditions))
	if f.always {
		text += ".Always()"
	}
	if f.times > 0 {
		text += fmt.Sprintf(".Times(%d)", f.times)
	}
	if len(f.operations) == 0 {
		return text + " for every operation"
	}
	return text + " for " + strings.Join(f.operations, " and ")
}

// appliesTo reports whether f is for an operation. It ignores the conditions. operation is empty
// for an unknown path.
func (f Fault) appliesTo(operation string) bool {
	return len(f.operations) == 0 || slices.Contains(f.operations, operation)
}

// Inject queues faults. A request uses the first one that applies. Without Always, a fault leaves
// the queue after one use, or n with Times(n). The zero Fault, [Delay], [ResetInBody] and
// [Truncate] use the usual response; with another fault, the server checks neither the request nor
// its key.
func (s *Server) Inject(faults ...Fault) {
	s.lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		s.faults = append(s.faults, &queuedFault{Fault: f})
	}
}

// ClearFaults removes all faults, used or not.
func (s *Server) ClearFaults() {
	s.lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// nextFault returns the fault that a request uses, or the zero Fault if none applies.
func (s *Server) nextFault(request Request) Fault {
	s.lock()
	queue := slices.Clone(s.faults)
	s.mu.Unlock()
	for _, f := range queue {
		if f.appliesTo(request.Operation) && s.matches(f.Fault, request) && s.use(f) {
			return f.Fault
		}
	}
	return Fault{}
}

func (s *Server) matches(f Fault, request Request) bool {
	for _, match := range f.conditions {
		if !s.callIf(match, request) {
			return false
		}
	}
	return true
}

func (s *Server) callIf(match func(Request) bool, request Request) bool {
	defer s.acquireInHandler(s.ifSem)()
	defer s.runs("If")()
	defer s.handlePanic("If")
	return match(request)
}

// use counts a use of f, and removes f after the last one. It returns false if f is not queued.
func (s *Server) use(f *queuedFault) bool {
	s.lock()
	defer s.mu.Unlock()
	i := slices.Index(s.faults, f)
	if i < 0 { // another request has used it, or ClearFaults has removed it
		return false
	}
	f.uses++
	if !f.always && f.uses >= f.times {
		s.faults = slices.Delete(s.faults, i, i+1)
	}
	return true
}

// unusedFaults returns an error text for each fault that was used too seldom. It is called with mu
// held.
func (s *Server) unusedFaults() (texts []string) {
	const format = "the fault %s was %s: send a request that uses it, or call ClearFaults"
	for _, f := range s.faults {
		if f.uses == 0 {
			texts = append(texts, fmt.Sprintf(format, f.describe(), "never used"))
		} else if !f.always {
			texts = append(texts, fmt.Sprintf(format, f.describe(), fmt.Sprintf("used by %d of %d requests", f.uses, f.times)))
		}
	}
	return texts
}

func (f Fault) serve(s *Server, w http.ResponseWriter, r *http.Request) {
	w = &faultWriter{ResponseWriter: w, fault: f}
	if f.respond == nil {
		s.respond(w, r)
		return
	}
	f.respond(s, w, r)
	if f.status != 0 || f.header != nil { // the function of Respond may have written nothing
		w.WriteHeader(http.StatusOK)
	}
}

// A faultWriter overrides the status and the headers of a response.
type faultWriter struct {
	http.ResponseWriter
	fault Fault
	wrote bool
}

func (w *faultWriter) WriteHeader(status int) {
	if w.wrote {
		return
	}
	w.wrote = status >= 200 || status == http.StatusSwitchingProtocols // other statuses are not final
	if w.wrote {
		maps.Copy(w.Header(), w.fault.header)
		status = cmp.Or(w.fault.status, status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *faultWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// FlushError is used by [http.ResponseController].
func (w *faultWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is used by [http.ResponseController].
func (w *faultWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Respond returns a fault that calls h, which writes the response.
func Respond(h http.HandlerFunc) Fault {
	return Fault{kind: "Respond", respond: func(s *Server, w http.ResponseWriter, r *http.Request) {
		defer s.runs("Respond")()
		defer s.handlePanic("Respond")
		h(w, r)
	}}
}

// Status returns a fault that responds with an HTTP status, from 200 to 599, and no body.
func Status(status int) Fault {
	checkStatus("Status", status)
	respond := func(_ *Server, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	return Fault{kind: fmt.Sprintf("Status(%d)", status), respond: respond}
}

// ErrorResponse returns a fault that responds with an envelope and HTTP status 200. It panics if
// data cannot be encoded to JSON.
func ErrorResponse(code int, msg string, data any) Fault {
	_, isJSON := data.(json.RawMessage)
	if raw, _ := json.Marshal(data); !isJSON && string(raw) == "null" {
		data = nil // omitempty would keep a nil map or pointer
	}
	body, err := json.Marshal(envelope{Code: code, Msg: msg, Data: data})
	if err != nil {
		panic(fmt.Sprintf("msgpushtest: ErrorResponse: the data cannot be encoded to JSON: %v", err))
	}
	return static(fmt.Sprintf("ErrorResponse(%d, %q)", code, msg), "application/json", string(body))
}

// static returns a fault that responds with a body, and with HTTP status 200 unless WithStatus sets
// another.
func static(kind, contentType, body string) Fault {
	return Fault{kind: kind, respond: func(_ *Server, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body) // fails if the connection has ended or the status allows no body
	}}
}

// RejectKey returns a fault that rejects any access key, with the code [CodeAccessKey].
func RejectKey() Fault {
	f := ErrorResponse(errAccessKey.code, errAccessKey.msg, nil)
	f.kind = "RejectKey"
	return f
}

// rateLimited returns the response to a request above the rate limit. The window ends after d.
func rateLimited(d time.Duration) Fault {
	seconds := (d + time.Second - 1) / time.Second
	return ErrorResponse(CodeRateLimit, "too many requests", nil).
		WithStatus(http.StatusTooManyRequests).WithHeader("Retry-After", strconv.Itoa(int(seconds)))
}

// Delay returns a fault that delays the response by d. A negative d panics.
func Delay(d time.Duration) Fault {
	checkWait("Delay", d)
	return Fault{kind: fmt.Sprintf("Delay(%v)", d), respond: func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.wait(r, d)
		s.respond(w, r)
	}}
}

// HTML returns a fault that responds with an HTML page and HTTP status 200.
func HTML() Fault {
	return static("HTML", "text/html; charset=utf-8",
		"<!DOCTYPE html>\n<html><head><title>Sorry</title></head><body><h1>We will be back soon</h1></body></html>\n")
}

// Garbage returns a fault that responds with bytes that are not JSON.
func Garbage() Fault { return static("Garbage", "application/json", "\x00\xff{]garbage\n") }

// Redirect returns a fault that responds with HTTP status 302 and a location.
func Redirect(location string) Fault {
	f := Status(http.StatusFound).WithHeader("Location", location)
	f.kind = fmt.Sprintf("Redirect(%q)", location)
	return f
}

// Endless returns a fault whose body ends when the client ends the request or the server is closed.
// It sends at most 64 KiB a millisecond.
func Endless() Fault {
	return Fault{kind: "Endless", respond: func(s *Server, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, `{"code":200,"msg":"`)
		_ = http.NewResponseController(w).Flush()
		if r.Method == http.MethodHead {
			return
		}
		for chunk := strings.Repeat("x", 64<<10); err == nil; _, err = io.WriteString(w, chunk) {
			s.wait(r, time.Millisecond) // without a wait, time would not pass in a synctest bubble
		}
		panic(http.ErrAbortHandler) // returning would end the body
	}}
}

// Reset returns a fault that resets the connection before the response. On a reused connection,
// net/http itself resends a GET: the caller does not see that reset. To prevent this, call
// CloseIdleConnections of [Server.HTTPClient] before the request.
func Reset() Fault {
	return Fault{kind: "Reset", respond: func(_ *Server, w http.ResponseWriter, _ *http.Request) { reset(w) }}
}

// ResetInBody returns a fault that resets the connection in the middle of the body.
func ResetInBody() Fault {
	return Fault{kind: "ResetInBody", respond: func(s *Server, w http.ResponseWriter, r *http.Request) {
		s.respondHalf(w, r)
		_ = http.NewResponseController(w).Flush()
		reset(w)
	}}
}

// Truncate returns a fault that closes the connection in the middle of the body.
func Truncate() Fault { return Fault{kind: "Truncate", respond: (*Server).respondHalf} }

// respondHalf sends half of the usual body. When the handler returns, net/http closes the
// connection, since the body is shorter than its Content-Length.
func (s *Server) respondHalf(w http.ResponseWriter, r *http.Request) {
	usual := httptest.NewRecorder()
	s.respond(usual, r)
	body := usual.Body.Bytes()
	w.Header().Set("Content-Type", usual.Header().Get("Content-Type"))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body[:len(body)/2])
}

// reset resets the connection of a response, or aborts only the response if the connection cannot
// be hijacked, as with HTTP/2.
func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if c, ok := conn.(interface{ NetConn() net.Conn }); ok { // Close of a *tls.Conn does not reset it
			conn = c.NetConn()
		}
		if c, ok := conn.(interface{ SetLinger(int) error }); ok {
			_ = c.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler) // nothing more can be written
}
