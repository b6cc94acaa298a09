package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/msgpush/msgpushtest"
)

// controlPath begins the paths of the control interface.
const controlPath = "/control/"

// withControl serves the control interface, and passes other requests to faults. reset restores the state of
// the start.
func withControl(
	fake *msgpushtest.Server, faults *clientFaults, requests *requestLog, reset func(),
) http.Handler {
	control := http.NewServeMux()
	control.HandleFunc("POST /control/records", change(func(body []byte) error {
		added, err := decodeRecords(bytes.NewReader(body))
		if err != nil {
			return err
		}
		return addRecords(fake, added)
	}))
	control.HandleFunc("PUT /control/key", change(func(body []byte) error {
		key := strings.TrimSpace(string(body))
		if err := checkKey(key); err != nil {
			return err
		}
		fake.ReplaceKey(key)
		return nil
	}))
	control.HandleFunc("POST /control/faults", change(func(body []byte) error {
		var fault clientFault
		if err := decodeStrictly(bytes.NewReader(body), &fault); err != nil {
			return err
		}
		return faults.inject(fault)
	}))
	control.HandleFunc("DELETE /control/faults", change(func([]byte) error {
		faults.clear()
		return nil
	}))
	control.HandleFunc("GET /control/faults", func(w http.ResponseWriter, _ *http.Request) {
		writeList(w, faults.list())
	})
	control.HandleFunc("GET /control/requests", requests.serve)
	control.HandleFunc("POST /control/reset", change(func([]byte) error {
		reset()
		return nil
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, controlPath) {
			control.ServeHTTP(w, r)
			return
		}
		faults.ServeHTTP(w, r)
	})
}

// change returns a handler that calls f with the body of a request.
func change(f func(body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = f(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// checkKey returns an error for a key that no client could send in a header.
func checkKey(key string) error {
	if key == "" {
		return errors.New("the access key is empty")
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the access key has a character that is not printable ASCII")
	}
	return nil
}

// maxRequests is the number of requests that a requestLog stores.
const maxRequests = 1000

// A requestLog stores the last requests.
type requestLog struct {
	mu       sync.Mutex
	requests []msgpushtest.Request
}

func (l *requestLog) add(r msgpushtest.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) == maxRequests {
		l.requests = slices.Delete(l.requests, 0, 1)
	}
	l.requests = append(l.requests, r)
}

func (l *requestLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = nil
}

// serve writes the requests as JSON, the oldest first.
func (l *requestLog) serve(w http.ResponseWriter, _ *http.Request) {
	type request struct {
		Time      time.Time   `json:"time"`
		Operation string      `json:"operation"`
		Method    string      `json:"method"`
		Path      string      `json:"path"`
		Query     url.Values  `json:"query"`
		Header    http.Header `json:"header"`
		Body      any         `json:"body"`
	}
	l.mu.Lock()
	var all []request
	for _, r := range l.requests {
		all = append(all, request{r.Time, r.Operation, r.Method, r.Path, r.Query, r.Header, r.Body})
	}
	l.mu.Unlock()
	writeList(w, all)
}

// writeList writes a list as JSON.
func writeList[T any](w http.ResponseWriter, list []T) {
	if list == nil {
		list = []T{} // not null
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(list) // fails if the connection has ended
}
