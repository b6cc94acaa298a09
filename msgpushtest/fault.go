package msgpushtest

import (
	"cmp"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"time"

	"example.com/msgpush"
)

// A Fault is something that a [Server] does in place of its answer, to one
// request or, with [Fault.Always], to all. It concerns every operation, or those
// that [Fault.For] names. It is made by functions such as [Status] and [Reset]; the
// zero Fault answers as if there were none.
type Fault struct {
	respond    func(*Server, http.ResponseWriter, *http.Request)
	status     int // 0 for the fault's own
	header     http.Header
	operations []string
	always     bool
}

// For returns a fault that is like f for the operations with these names, such as
// [MPList], and none for others. Without names it is for all.
func (f Fault) For(operations ...string) Fault {
	f.operations = slices.Clone(operations)
	return f
}

// Always returns a fault like f that comes back for every request until
// [Server.ClearFaults].
func (f Fault) Always() Fault {
	f.always = true
	return f
}

// WithStatus returns a fault like f with another HTTP status. A connection that is
// reset has none.
func (f Fault) WithStatus(status int) Fault {
	f.status = status
	return f
}

// WithHeader returns a fault like f with a header set, such as Retry-After.
func (f Fault) WithHeader(name, value string) Fault {
	f.header = maps.Clone(f.header)
	if f.header == nil {
		f.header = http.Header{}
	}
	f.header.Set(name, value)
	return f
}

// Inject adds faults to those that the server is to have. A request has the
// first that concerns it, which is then used up unless it is [Fault.Always]; what
// was added after one of those waits for [Server.ClearFaults] in vain. A request
// that has a fault is not checked.
func (s *Server) Inject(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// ClearFaults takes back all faults that were injected and not used up.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// nextFault returns the fault for a request, if there is one.
func (s *Server) nextFault(operation string) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.faults, func(f Fault) bool {
		return len(f.operations) == 0 || slices.Contains(f.operations, operation)
	})
	if i < 0 {
		return Fault{}, false
	}
	f := s.faults[i]
	if !f.always {
		s.faults = slices.Delete(slices.Clone(s.faults), i, i+1)
	}
	return f, true
}

func (f Fault) serve(s *Server, w http.ResponseWriter, r *http.Request) {
	w = &faultWriter{ResponseWriter: w, fault: f}
	if f.respond == nil {
		s.answer(w, r)
		return
	}
	f.respond(s, w, r)
}

// A faultWriter answers with the status and the headers of a fault, where it has
// any, in place of those that it is given.
type faultWriter struct {
	http.ResponseWriter
	fault Fault
	wrote bool
}

func (w *faultWriter) WriteHeader(status int) {
	if w.wrote {
		return
	}
	w.wrote = true
	maps.Copy(w.Header(), w.fault.header)
	w.ResponseWriter.WriteHeader(cmp.Or(w.fault.status, status))
}

func (w *faultWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *faultWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (w *faultWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Respond is a fault that h answers with, for anything that the other faults do not cover.
func Respond(h http.HandlerFunc) Fault {
	return Fault{respond: func(_ *Server, w http.ResponseWriter, r *http.Request) { h(w, r) }}
}

// Status answers with an HTTP status and no body.
func Status(status int) Fault {
	return Respond(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// Refuse answers with an envelope of this code, msg and data, and HTTP status
// 200.
func Refuse(code int, msg string, data any) Fault {
	return Respond(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, msgpush.Envelope[any]{Code: code, Msg: msg, Data: data})
	})
}

// RejectKey refuses the access key, as if it were another than the server's.
func RejectKey() Fault { return Refuse(otherKey.code, otherKey.msg, nil) }

// Delay waits and then answers as if there were no fault.
func Delay(d time.Duration) Fault {
	return Fault{respond: func(s *Server, w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.answer(w, r)
		case <-r.Context().Done():
		case <-s.closed:
			panic(http.ErrAbortHandler) // which breaks the connection off
		}
	}}
}

// HTML answers with an HTML page, as a gateway does, and HTTP status 200.
func HTML() Fault {
	return Respond(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html><head><title>Sorry</title></head><body><h1>We will be back soon</h1></body></html>\n")
	})
}

// Garbage answers with bytes that are not JSON, though the header says so.
func Garbage() Fault {
	return Respond(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "\x00\xff{]garbage\n")
	})
}

// Redirect answers with HTTP status 302 and a Location.
func Redirect(location string) Fault {
	return Status(http.StatusFound).WithHeader("Location", location)
}

// Endless answers with a body that does not end before the client goes.
func Endless() Fault {
	return Fault{respond: func(s *Server, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		err := http.NewResponseController(w).Flush()
		if r.Method == http.MethodHead {
			return // what is written would go nowhere, for ever
		}
		_, _ = io.WriteString(w, `{"code":200,"msg":"`)
		more := make([]byte, 4096)
		for i := range more {
			more[i] = 'x'
		}
		for err == nil && r.Context().Err() == nil && !s.isClosed() {
			_, err = w.Write(more)
		}
		panic(http.ErrAbortHandler) // since to return would end the body
	}}
}

func (s *Server) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// Reset resets the connection before the header of an answer.
func Reset() Fault {
	return Respond(func(w http.ResponseWriter, _ *http.Request) { breakOff(w, true) })
}

// ResetInBody gives half of the answer that there would be without the fault, and
// then resets the connection.
func ResetInBody() Fault { return half(true) }

// Truncate gives half of the answer that there would be without the fault, and
// then closes the connection.
func Truncate() Fault { return half(false) }

func half(reset bool) Fault {
	return Fault{respond: func(s *Server, w http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		s.answer(whole, r)
		body := whole.Body.Bytes()
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		breakOff(w, reset)
	}}
}

// breakOff closes the connection, in the way of a network that broke if reset.
func breakOff(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
