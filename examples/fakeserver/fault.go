package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// The headers with which a client selects a fault for its request or, with an id, for its next requests.
const (
	faultHeader  = "Fakeserver-Fault"
	clientHeader = "Fakeserver-Client"
	timesHeader  = "Fakeserver-Times"
)

// parseFault returns the fault of a text such as "status:503:2", which usage explains.
func parseFault(text string) (msgpushtest.Fault, error) {
	name, value, _ := strings.Cut(text, ":")
	switch name {
	case "status":
		return statusFault(value)
	case "error":
		return errorFault(value)
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
		return msgpushtest.Fault{}, fmt.Errorf("%q is not one of status:503, status:503:2, error:1001:busy, "+
			"delay:2s, reset, truncate, html, rejected-key", text)
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

// errorFault returns the fault of an error response: a code and, perhaps, a message.
func errorFault(text string) (msgpushtest.Fault, error) {
	code, msg, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(code)
	if err != nil {
		return msgpushtest.Fault{}, fmt.Errorf("%q is not a code, as in error:1001:busy", code)
	}
	return msgpushtest.ErrorResponse(n, msg, nil), nil
}

func parseStatus(text string) (int, error) {
	status, err := strconv.Atoi(text)
	if err != nil || status < 200 || status > 599 {
		return 0, fmt.Errorf("%q is not a status from 200 to 599", text)
	}
	return status, nil
}

// parseFaultOf returns a fault of every request for an operation or, of a list, for a page. usage explains
// its text.
func parseFaultOf(text string) (msgpushtest.Fault, error) {
	at := strings.LastIndexByte(text, '@') // the message of an error may have another one
	if at < 0 {
		return msgpushtest.Fault{}, errors.New("the operation is missing, as in reset@ForwardLogList")
	}
	operation, page, hasPage := strings.Cut(text[at+1:], ":")
	fault, err := parseFault(text[:at])
	if err != nil {
		return msgpushtest.Fault{}, err
	}
	isSpecified := func(op msgpush.Operation) bool { return op.Specified() && op.Name == operation }
	if !slices.ContainsFunc(msgpush.Operations(), isSpecified) {
		return msgpushtest.Fault{}, fmt.Errorf("%q is not an operation, such as ForwardLogList", operation)
	}
	fault = fault.For(operation).Always()
	if !hasPage {
		return fault, nil
	}
	number, err := strconv.Atoi(page)
	if err != nil || number < 1 {
		return msgpushtest.Fault{}, fmt.Errorf("%q is not a page number", page)
	}
	return fault.If(func(r msgpushtest.Request) bool { return r.Has("current", number) }), nil
}

// parseFailure returns an HTTP status of a share of the responses, from a text such as "503:0.1".
func parseFailure(text string) (msgpushtest.Fault, error) {
	code, part, _ := strings.Cut(text, ":")
	status, err := parseStatus(code)
	if err != nil {
		return msgpushtest.Fault{}, err
	}
	share, err := strconv.ParseFloat(part, 64)
	isShare := share >= 0 && share <= 1 // false for NaN
	if err != nil || !isShare {
		return msgpushtest.Fault{}, fmt.Errorf("%q is not a share from 0 to 1", part)
	}
	isChosen := func(msgpushtest.Request) bool { return rand.Float64() < share }
	return msgpushtest.Status(status).Always().If(isChosen), nil
}

// A clientFault is a fault of the next requests of a client.
type clientFault struct {
	Client string `json:"client"` // value of clientHeader
	Fault  string `json:"fault"`
	Times  int    `json:"times"` // requests that are left; 0 in a request means 1
}

// clientFaults injects the faults that clients select.
type clientFaults struct {
	fake *msgpushtest.Server

	mu   sync.Mutex
	left []*clientFault       // whose requests have not all arrived
	seen map[clientFault]bool // in headers
}

// inject gives a fault to the next requests of a client.
func (c *clientFaults) inject(f clientFault) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.injectLocked(f)
}

// injectLocked is inject for a caller that holds mu.
func (c *clientFaults) injectLocked(f clientFault) error {
	if f.Client == "" {
		return errors.New("the client is missing: it is the value of the header " + clientHeader)
	}
	if f.Times < 0 {
		return fmt.Errorf("times is %d, not at least 1", f.Times)
	}
	fault, err := parseFault(f.Fault)
	if err != nil {
		return err
	}
	f.Times = max(f.Times, 1)
	c.left = append(c.left, &f)
	isNext := func(r msgpushtest.Request) bool {
		isClient := r.Header.Get(clientHeader) == f.Client
		if isClient {
			c.use(&f)
		}
		return isClient
	}
	c.fake.Inject(fault.If(isNext).Times(f.Times))
	return nil
}

// use counts a request that gets a fault.
func (c *clientFaults) use(f *clientFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Times--
	if f.Times == 0 {
		c.left = slices.DeleteFunc(c.left, func(other *clientFault) bool { return other == f })
	}
}

// list returns the faults that are left, with the number of requests.
func (c *clientFaults) list() (left []clientFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.left {
		left = append(left, *f)
	}
	return left
}

// clear removes all faults, including the faults that flags set.
func (c *clientFaults) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fake.ClearFaults()
	c.left = nil
	clear(c.seen)
}

// injectOfHeaders injects the fault that the headers of a request name. A client may send them with each
// request and each retry, so a fault is injected once.
func (c *clientFaults) injectOfHeaders(header http.Header) error {
	f := clientFault{Client: header.Get(clientHeader), Fault: header.Get(faultHeader)}
	times := header.Get(timesHeader)
	switch {
	case f.Fault == "" && times == "":
		return nil
	case f.Fault == "":
		return errors.New(timesHeader + " needs " + faultHeader)
	case f.Client == "" && times != "":
		return errors.New(timesHeader + " needs " + clientHeader)
	}
	var err error
	f.Times, err = parseTimes(times)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[f] {
		return nil
	}
	if f.Client == "" {
		err = c.injectForAll(f.Fault)
	} else {
		err = c.injectLocked(f)
	}
	c.seen[f] = err == nil
	return err
}

// injectForAll injects a fault that each request without a client gets that names it.
func (c *clientFaults) injectForAll(text string) error {
	fault, err := parseFault(text)
	if err != nil {
		return err
	}
	namesIt := func(r msgpushtest.Request) bool {
		return r.Header.Get(clientHeader) == "" && r.Header.Get(faultHeader) == text
	}
	c.fake.Inject(fault.If(namesIt).Always())
	return nil
}

// ServeHTTP injects the fault that the headers of a request name, and passes the request to the server.
func (c *clientFaults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.injectOfHeaders(r.Header); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.fake.ServeHTTP(w, r)
}

// parseTimes returns the value of timesHeader, or 1 if it is missing.
func parseTimes(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a number of requests", timesHeader, text)
	}
	return n, nil
}

// allowOrigin permits the pages of an origin to send requests.
func allowOrigin(origin string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Headers", "access-key, content-type, "+faultHeader+", "+clientHeader+", "+timesHeader)
		h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
		h.Set("Access-Control-Expose-Headers", "Retry-After")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
