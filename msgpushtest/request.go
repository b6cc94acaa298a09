package msgpushtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Request is a request that arrived at a [Server], with a placeholder wherever
// it has the server's access key. Its header, query and body are shared by all who
// ask for it, and must not be changed.
type Request struct {
	// Time is when it arrived.
	Time time.Time
	// Operation is the operation, such as [MPList]; empty if the server has none
	// at the path.
	Operation string
	// Method, Path and Query are what was asked for.
	Method string
	Path   string
	Query  url.Values
	// Header has the headers.
	Header http.Header
	// Body is the body as encoding/json decodes it into an any, a string if it
	// is not JSON, and nil if there is none.
	Body any
}

// String returns the request on one line.
func (r Request) String() string {
	text := r.Time.Format("15:04:05.000") + " " + r.Method + " " + (&url.URL{Path: r.Path}).EscapedPath()
	if len(r.Query) > 0 {
		text += "?" + r.Query.Encode()
	}
	if r.Body != nil {
		body, err := json.Marshal(r.Body)
		if err != nil {
			return text
		}
		text += " " + string(body)
	}
	return text
}

// masked is what stands for an access key.
const masked = "[redacted]"

// record notes a request, and leaves its body to be read again.
func (s *Server) record(r *http.Request) Request {
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes+1))
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := []string{s.firstKey, masked}
	if len(s.key) >= 6 { // a shorter one is likely to be part of a word
		keys = append(keys, s.key, masked)
	}
	mask := strings.NewReplacer(keys...)
	query, _ := url.ParseQuery(mask.Replace(r.URL.RawQuery)) // of a malformed one, what there is
	request := Request{
		Time:      time.Now(),
		Operation: operations[r.URL.Path].name,
		Method:    r.Method,
		Path:      mask.Replace(r.URL.Path),
		Query:     query,
		Header:    r.Header.Clone(),
	}
	if len(request.Header.Values("access-key")) > 0 {
		request.Header.Set("access-key", masked) // whatever it is
	}
	text := mask.Replace(string(body))
	if text != "" && json.Unmarshal([]byte(text), &request.Body) != nil {
		request.Body = text
	}
	s.requests = append(s.requests, request)
	close(s.arrival)
	s.arrival = make(chan struct{})
	return request
}

// Requests returns what arrived, in that order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ForgetRequests forgets what arrived, so that the next request is the first.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// AwaitRequest waits until n requests have arrived, and returns the n-th, counted
// from 1. It returns the context's error if that ends before.
func (s *Server) AwaitRequest(ctx context.Context, n int) (Request, error) {
	if n < 1 {
		return Request{}, fmt.Errorf("msgpushtest: request %d: the first is number 1", n)
	}
	for {
		s.mu.Lock()
		requests, arrival := s.requests, s.arrival
		s.mu.Unlock()
		if len(requests) >= n {
			return requests[n-1], nil
		}
		select {
		case <-arrival:
		case <-ctx.Done():
			return Request{}, fmt.Errorf("msgpushtest: waiting for request %d, %d have arrived: %w", n, len(requests), ctx.Err())
		}
	}
}
