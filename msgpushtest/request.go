package msgpushtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A Request is a request that arrived at a [Server]. Its access-key header is redacted. Header, Query and
// Body are shared with other copies and must not be changed.
type Request struct {
	Time      time.Time // of arrival
	Operation string    // such as [MPList]; empty if there is none at the path
	Method    string
	Path      string
	Query     url.Values
	Header    http.Header
	// Body is decoded JSON, with each number as a [json.Number]: compare members with Has. It is a string
	// if the body is not JSON, and nil if it is empty.
	Body any
}

// String returns the time of day, the method, the path, the query and the body on one line.
func (r Request) String() string {
	text := r.Time.Format("15:04:05.000") + " " + r.Method + " " + (&url.URL{Path: r.Path}).EscapedPath()
	if len(r.Query) > 0 {
		text += "?" + r.Query.Encode()
	}
	if r.Body != nil {
		body, _ := json.Marshal(r.Body) // cannot fail: it was decoded from JSON, or is a string
		text += " " + string(body)
	}
	return text
}

// Has reports whether the JSON body has a member at a path, such as "current" or "params.ruleId", that is
// equal to the JSON encoding of value. It panics if value cannot be encoded to JSON.
func (r Request) Has(path string, value any) bool {
	want, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("msgpushtest: Request.Has: the value cannot be encoded to JSON: %v", err))
	}
	member := r.Body
	for name := range strings.SplitSeq(path, ".") {
		object, _ := member.(map[string]any)
		next, ok := object[name]
		if !ok {
			return false
		}
		member = next
	}
	return reflect.DeepEqual(decode(string(want)), member)
}

// record stores a request.
func (s *Server) record(r *http.Request) Request {
	request := newRequest(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
	close(s.arrival)
	s.arrival = make(chan struct{})
	return request
}

// newRequest copies a request and leaves its body readable.
func newRequest(r *http.Request) Request {
	body, _ := io.ReadAll(r.Body)
	// If reading has failed, r.Body returns the error again.
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), r.Body))
	request := Request{
		Time:      time.Now(),
		Operation: specified[r.URL.Path].Name,
		Method:    r.Method,
		Path:      r.URL.Path,
		Query:     r.URL.Query(),
		Header:    r.Header.Clone(),
	}
	if len(request.Header.Values("access-key")) > 0 {
		request.Header.Set("access-key", "[redacted]") // requests are logged
	}
	if len(body) > 0 {
		request.Body = decode(string(body))
	}
	return request
}

// decode returns a JSON value, or text itself if it is not JSON.
func decode(text string) any {
	if !json.Valid([]byte(text)) {
		return text
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // float64 would round ids
	var value any
	_ = decoder.Decode(&value) // cannot fail: the text is valid
	return value
}

// Requests returns the requests since [Server.ClearRequests], in the order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ClearRequests discards the requests so far. The next one is request 1 for WaitForRequest.
func (s *Server) ClearRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// errTestEnds is the reason why WaitForRequest ends before the test does.
var errTestEnds = errors.New("the test has almost reached the timeout of go test")

// testEnds returns a channel that receives shortly before the deadline of the test, or nil if that is not
// known.
func (s *Server) testEnds() <-chan time.Time {
	if s.deadline.IsZero() {
		return nil
	}
	return time.After(time.Until(s.deadline) - time.Second)
}

// WaitForRequest waits until n requests have arrived and returns the n-th, counted from 1. It returns an
// error if n is below 1. It also returns an error if, before the request arrives, ctx ends, the server is
// closed, or only a second is left until the test of [New] reaches the timeout of go test. The context of the
// test itself does not end while the test waits: to learn sooner that no request arrives, pass one with a
// timeout. In a synctest bubble, such a timeout takes no real time, and the timeout of go test is not known.
func (s *Server) WaitForRequest(ctx context.Context, n int) (Request, error) {
	if n < 1 {
		return Request{}, fmt.Errorf("msgpushtest: WaitForRequest: n is %d, but the first request is number 1", n)
	}
	testEnds := s.testEnds()
	for {
		s.mu.Lock()
		requests, arrival := s.requests, s.arrival
		s.mu.Unlock()
		if len(requests) >= n {
			return requests[n-1], nil
		}
		var err error
		select {
		case <-arrival:
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.closed:
			err = http.ErrServerClosed
		case <-testEnds:
			err = errTestEnds
		}
		return Request{}, fmt.Errorf("msgpushtest: WaitForRequest: request %d has not arrived (%d so far): %w",
			n, len(requests), err)
	}
}
