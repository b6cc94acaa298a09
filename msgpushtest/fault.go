package msgpushtest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// A Fault changes the response of a [Server] to one request or, with [Fault.Times] or [Fault.Always], to
// more. The zero Fault is the usual response.
type Fault struct {
	kind       string                                               // such as "Status(503)", for describe
	respond    func(*responder, http.ResponseWriter, *http.Request) // nil: the usual response
	badRecord  string                                               // an id, for BadRecord; or empty
	status     int                                                  // set by WithStatus, or 0
	header     http.Header
	operations []string // empty: any request
	conditions []func(Request) bool
	always     bool
	times      int // 0 means 1
}

// For returns a copy of f that applies only to some operations, such as [MPList]; without names, to all. The
// name of an operation that the server does not know is its path, such as "/your/path". Another unknown name
// panics.
func (f Fault) For(operations ...string) Fault {
	for _, name := range operations {
		isPath := strings.HasPrefix(name, "/")
		if !isPath && !slices.Contains(operationNames(), name) {
			panic(fmt.Sprintf("msgpushtest: Fault.For: %q is not an operation: "+
				"use a path, or a constant such as msgpushtest.MailDetail; the operations are %q", name, operationNames()))
		}
	}
	f.operations = slices.Clone(operations)
	return f
}

// operationNames sorts the names, since For prints them when it panics.
func operationNames() []string { return slices.Sorted(maps.Keys(operations)) }

// If returns a copy of f that applies only to requests for which match returns true, such as those for page
// 2. With several conditions, all must match. match is called for one request at a time, and must not close
// the server or send it a request. A match that is nil panics.
func (f Fault) If(match func(Request) bool) Fault {
	if match == nil {
		panic("msgpushtest: Fault.If: the function is nil")
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

// WithStatus returns a copy of f with another HTTP status, from 200 to 599. Another status panics.
func (f Fault) WithStatus(status int) Fault {
	checkStatus("Fault.WithStatus", status)
	f.status = status
	return f
}

// checkStatus panics for a status that net/http would not send as a final response. net/http itself would
// panic in the server, where the test does not see it.
func checkStatus(name string, status int) {
	if status < 200 || status > 599 {
		panic(fmt.Sprintf("msgpushtest: %s: %d is not an HTTP status from 200 to 599", name, status))
	}
}

// WithHeader returns a copy of f that sets a header of the response, such as Retry-After.
func (f Fault) WithHeader(name, value string) Fault {
	f.header = maps.Clone(f.header)
	if f.header == nil {
		f.header = http.Header{}
	}
	f.header.Set(name, value)
	return f
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

// serve sends the response.
func (f Fault) serve(usual *responder, w http.ResponseWriter, r *http.Request) {
	overrides := f.status != 0 || f.header != nil
	if overrides {
		w = &faultWriter{ResponseWriter: w, fault: f}
	}
	if f.respond == nil {
		usual.respond(w, r)
		return
	}
	f.respond(usual, w, r)
	if overrides { // the function of Respond may have written nothing
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
	if status < http.StatusOK { // an informational response before the final one
		w.ResponseWriter.WriteHeader(status)
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

// Unwrap is used by [http.ResponseController].
func (w *faultWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
