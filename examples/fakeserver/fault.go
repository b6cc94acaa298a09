package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// faultHeader is the header with which a client selects a fault for its request.
const faultHeader = "Fakeserver-Fault"

// parseFault returns the fault of a text such as "status:503:2", which usage explains.
func parseFault(text string) (msgpushtest.Fault, error) {
	name, value, _ := strings.Cut(text, ":")
	switch name {
	case "status":
		return statusFault(value)
	case "delay":
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return msgpushtest.Fault{}, fmt.Errorf("%q is not a delay, such as delay:2s", text)
		}
		return msgpushtest.Delay(d), nil
	}
	faults := map[string]func() msgpushtest.Fault{
		"reset":        msgpushtest.Reset,
		"truncate":     msgpushtest.Truncate,
		"html":         msgpushtest.HTML,
		"rejected-key": msgpushtest.RejectKey,
	}
	fault, ok := faults[text]
	if !ok {
		return msgpushtest.Fault{}, fmt.Errorf("%q is not one of status:503, status:503:2, delay:2s, reset, "+
			"truncate, html, rejected-key", text)
	}
	return fault(), nil
}

// statusFault returns the fault of a status and, perhaps, the seconds of a Retry-After header.
func statusFault(text string) (msgpushtest.Fault, error) {
	code, seconds, hasRetryAfter := strings.Cut(text, ":")
	status, err := parseStatus(code)
	if err != nil {
		return msgpushtest.Fault{}, err
	}
	fault := msgpushtest.Status(status)
	if !hasRetryAfter {
		return fault, nil
	}
	n, err := strconv.Atoi(seconds)
	if err != nil || n < 0 {
		return msgpushtest.Fault{}, fmt.Errorf("%q is not a number of seconds", seconds)
	}
	return fault.WithHeader("Retry-After", seconds), nil
}

func parseStatus(text string) (int, error) {
	status, err := strconv.Atoi(text)
	if err != nil || status < 200 || status > 599 {
		return 0, fmt.Errorf("%q is not a status from 200 to 599", text)
	}
	return status, nil
}

// A faultOf is a fault of every request for an operation or, of a list, for a page.
type faultOf struct {
	text  string
	fault msgpushtest.Fault
}

// Set and String implement flag.Value.
func (f *faultOf) Set(value string) error {
	text, target, ok := strings.Cut(value, "@")
	if !ok {
		return errors.New("the operation is missing, as in reset@ForwardLogList")
	}
	operation, page, hasPage := strings.Cut(target, ":")
	fault, err := parseFault(text)
	if err != nil {
		return err
	}
	isSpecified := func(op msgpush.Operation) bool { return op.Specified() && op.Name == operation }
	if !slices.ContainsFunc(msgpush.Operations(), isSpecified) {
		return fmt.Errorf("%q is not an operation, such as ForwardLogList", operation)
	}
	fault = fault.For(operation)
	if hasPage {
		number, err := strconv.Atoi(page)
		if err != nil || number < 1 {
			return fmt.Errorf("%q is not a page number", page)
		}
		fault = fault.If(func(r msgpushtest.Request) bool { return r.Has("current", number) })
	}
	f.text, f.fault = value, fault.Always()
	return nil
}

func (f *faultOf) String() string { return f.text }

// injectFaults gives a request the fault that its header names.
func injectFaults(fake *msgpushtest.Server) http.Handler {
	const numberHeader = "Fakeserver-Request"
	var last atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.Header.Get(faultHeader)
		if text == "" {
			fake.ServeHTTP(w, r)
			return
		}
		fault, err := parseFault(text)
		if err != nil {
			http.Error(w, faultHeader+": "+err.Error(), http.StatusBadRequest)
			return
		}
		number := strconv.FormatInt(last.Add(1), 10)
		r.Header.Set(numberHeader, number) // so that no other request takes the fault
		fake.Inject(fault.If(func(q msgpushtest.Request) bool { return q.Header.Get(numberHeader) == number }))
		fake.ServeHTTP(w, r)
	})
}

// allowOrigin permits the pages of an origin to send requests.
func allowOrigin(origin string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Headers", "access-key, content-type, "+faultHeader)
		h.Set("Access-Control-Expose-Headers", "Retry-After")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
