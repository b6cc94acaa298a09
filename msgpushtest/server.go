package msgpushtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/msgpush"
)

// An Option configures a [Server].
type Option func(*settings)

type settings struct {
	inMemory        bool
	failOnRejection bool
}

// FailOnRejection makes the test of [New] fail for each request that the server itself rejects,
// such as one with an unknown member, or with a key that was replaced. Faults such as [RejectKey]
// and the rate limit do not count. [NewServer] panics with this option.
func FailOnRejection() Option { return func(s *settings) { s.failOnRejection = true } }

// InMemory makes the server use [net.Pipe] instead of a socket, as a [testing/synctest] bubble
// requires. Its URL can be reached only through [Server.Client] and [Server.HTTPClient].
func InMemory() Option { return func(s *settings) { s.inMemory = true } }

// A Server is a fake server of the message push service, made by [New] or [NewServer]. It is safe
// for concurrent use. Another HTTP server can serve it as an [http.Handler].
type Server struct {
	// URL is the base URL, without a trailing slash.
	URL string

	settings
	bubble    string // the synctest bubble in which the server was made, or ""
	http      http.Server
	transport *http.Transport
	closed    chan struct{} // closed, with mu held, when Close begins
	close     func()        // closes closed; may be called more than once

	goroutines sync.WaitGroup // that Close waits for

	// These are channels: a mutex would block a synctest bubble while a user's function sleeps.
	onRequestSem chan struct{} // held while the function of OnRequest runs
	ifSem        chan struct{} // held while a function of If runs
	updateSem    chan struct{} // held while the function of Update or UpdateBetweenPages runs

	mu        sync.Mutex // never held while a user's function runs; guards the fields below
	keys      keys
	limit     rateLimit
	latency   time.Duration
	store     store // records.go
	faults    []*queuedFault
	onRequest func(Request)
	requests  []Request
	arrival   chan struct{} // closed when the next request arrives
	conns     map[net.Conn]struct{}
	test      testState // wait.go
}

// keys holds the access keys of a server.
type keys struct {
	all      []string // so far; the last one is accepted unless it is empty
	lifetime int      // in requests; 0 is unlimited
	uses     int      // requests accepted with the last key, since SetKeyLifetime
}

// NewServer starts a server without records, for a program, which must call [Server.Close]. It
// panics if it cannot listen.
func NewServer(opts ...Option) *Server {
	s := newServer(nil, opts...)
	if s.failOnRejection {
		s.Close()
		panic("msgpushtest: NewServer: there is no test that FailOnRejection could fail: use New")
	}
	return s
}

func newServer(tb TB, opts ...Option) *Server {
	closed := make(chan struct{})
	s := &Server{
		bubble:       currentBubble(),
		transport:    &http.Transport{MaxIdleConnsPerHost: 1000},
		closed:       closed,
		close:        sync.OnceFunc(func() { close(closed) }),
		onRequestSem: make(chan struct{}, 1),
		ifSem:        make(chan struct{}, 1),
		updateSem:    make(chan struct{}, 1),
		keys:         keys{all: []string{newKey()}},
		store:        store{filtered: map[string]filteredList{}},
		arrival:      make(chan struct{}),
		conns:        map[net.Conn]struct{}{},
		test: testState{
			tb:      tb,
			running: map[string]int{},
			failed:  make(chan struct{}),
		},
	}
	for _, opt := range opts {
		opt(&s.settings)
	}
	s.http.Handler = s
	s.http.DisableGeneralOptionsHandler = true // so that the response to OPTIONS * is an envelope, too
	s.http.ConnState = s.trackConn
	var listener net.Listener
	s.transport.DialContext = new(net.Dialer).DialContext // without it, net/http would use fetch under js
	switch {
	case s.inMemory:
		pipes := newPipeListener()
		s.transport.DialContext = pipes.dialContext
		listener = pipes
	case s.bubble != "":
		panic("msgpushtest: time does not pass in a synctest bubble while a server listens on a socket: " +
			"use the option InMemory()")
	default:
		listener = httptest.NewUnstartedServer(nil).Listener
	}
	s.URL = "http://" + strings.TrimSuffix(listener.Addr().String(), ":80")
	s.goroutines.Go(func() { _ = s.http.Serve(listener) }) // until Close
	return s
}

func newKey() string { return "test-" + rand.Text() }

// trackConn makes Close wait for the goroutines of connections: time does not pass in a synctest
// bubble once the test has ended, so nothing may sleep by then.
func (s *Server) trackConn(conn net.Conn, state http.ConnState) {
	s.lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.goroutines.Add(1)
		s.conns[conn] = struct{}{}
	case http.StateHijacked, http.StateClosed:
		s.goroutines.Done()
		delete(s.conns, conn)
	}
}

// closeGrace is how long Close waits for responses in progress before it aborts them.
const closeGrace = 200 * time.Millisecond

// Close stops the server, and may be called more than once. It completes responses in progress, or
// aborts them after a short time. It ends the waits of [Delay], [Endless], [Server.SetLatency] and
// [Server.WaitForRequest].
//
// Close waits until the goroutines of the server have ended. A function that the test passed to the
// server must not call Close. If it runs for 5 more seconds, the test of [New] fails; with a server
// of [NewServer], Close panics. In a bubble, the wait has no limit.
func (s *Server) Close() {
	s.lock()
	s.close()
	s.mu.Unlock()
	s.transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = s.http.Shutdown(ctx) // if ctx ends first, s.http.Close aborts the rest
	_ = s.http.Close()
	s.waitForFunctions()
}

// HTTPClient returns an HTTP client for code that calls [msgpush.NewClient] itself, with
// [msgpush.WithHTTPClient]. Its connections are closed when the server is closed.
func (s *Server) HTTPClient() *http.Client {
	s.checkBubble("HTTPClient")
	return &http.Client{Transport: s.transport}
}

// Client returns a new client of the server. By default
//
//   - its access key is the one that the server accepts when Client is called, even after
//     SetAccessKey has replaced it;
//   - it treats [CodeAccessKey] as a rejected key;
//   - its retries wait for milliseconds, but it honours Retry-After, and waits a second after a 429
//     without it.
//
// opts override these defaults. Client panics if an option is invalid.
func (s *Server) Client(opts ...msgpush.Option) *msgpush.Client {
	s.checkBubble("Client")
	defaults := []msgpush.Option{
		msgpush.WithRejectedKeyCodes(CodeAccessKey),
		msgpush.WithRetry(msgpush.RetryPolicy{MinWait: time.Millisecond}),
		msgpush.WithHTTPClient(s.HTTPClient()),
	}
	opts = append(defaults, opts...)
	key := cmp.Or(s.AccessKey(), "rejected") // if the accepted key is empty, every key is rejected
	client, err := msgpush.NewClient(s.URL, key, opts...)
	if err != nil { // opts may have WithAccessKeySource, which excludes the key
		client, err = msgpush.NewClient(s.URL, "", opts...)
	}
	if err != nil {
		panic(fmt.Sprintf("msgpushtest: Client: %v", err))
	}
	return client
}

// AccessKey returns the key that the server accepts. At first it is a random key.
func (s *Server) AccessKey() string {
	s.lock()
	defer s.mu.Unlock()
	return s.keys.all[len(s.keys.all)-1]
}

// SetAccessKey replaces the accepted key. The old key is rejected immediately. If key is empty,
// every key is rejected.
func (s *Server) SetAccessKey(key string) {
	s.lock()
	defer s.mu.Unlock()
	s.setKey(key)
}

// SetKeyLifetime makes access keys expire: after the server has accepted a key n times, it replaces
// the key with a new one, which AccessKey returns. If n is 0, the default, keys do not expire. For
// keys that expire after a time, call [Server.SetAccessKey] from [time.AfterFunc].
func (s *Server) SetKeyLifetime(n int) {
	if n < 0 {
		panic(fmt.Sprintf("msgpushtest: SetKeyLifetime: %d requests: n must not be negative", n))
	}
	s.lock()
	defer s.mu.Unlock()
	s.keys.lifetime, s.keys.uses = n, 0
}

// setKey is called with mu held.
func (s *Server) setKey(key string) {
	s.keys.all, s.keys.uses = append(s.keys.all, key), 0
}

// acceptKey reports whether a key is accepted, and counts its use.
func (s *Server) acceptKey(key string) bool {
	s.lock()
	defer s.mu.Unlock()
	if key == "" || key != s.keys.all[len(s.keys.all)-1] {
		return false
	}
	s.keys.uses++
	if s.keys.uses == s.keys.lifetime {
		s.setKey(newKey())
	}
	return true
}

// SetLatency delays every response by d. Records are read after the delay. A negative d panics.
func (s *Server) SetLatency(d time.Duration) {
	checkWait("SetLatency", d)
	s.lock()
	defer s.mu.Unlock()
	s.latency = d
}

// SetRateLimit limits the requests to n in each window of time. A window begins with the first
// request after the last window. Further requests get HTTP status 429, the code [CodeRateLimit] and
// a Retry-After header, and use up no fault. If n is 0, the default, there is no limit.
func (s *Server) SetRateLimit(n int, window time.Duration) {
	if n < 0 || n > 0 && window <= 0 {
		panic(fmt.Sprintf("msgpushtest: SetRateLimit: %d requests in %v: n must not be negative, "+
			"and window must be positive unless n is 0", n, window))
	}
	s.lock()
	defer s.mu.Unlock()
	s.limit = rateLimit{max: n, window: window}
}

// A rateLimit counts the requests in a fixed window.
type rateLimit struct {
	max    int // 0 is unlimited
	window time.Duration
	start  time.Time // of the current window
	count  int       // allowed requests in the current window
}

// allow reports whether a request is within the limit and, if not, returns the time until the
// window ends.
func (l *rateLimit) allow(now time.Time) (time.Duration, bool) {
	if now.Sub(l.start) >= l.window {
		l.start, l.count = now, 0
	}
	if l.max == 0 || l.count < l.max {
		l.count++
		return 0, true
	}
	return l.start.Add(l.window).Sub(now), false
}

// OnRequest sets a function that is called with each request before the response, or none if f is
// nil. Calls do not overlap. f may change the server, and sleep, for less than 5 s outside a
// bubble. A fault that f injects can already apply to this request. f must not close the server or
// send it a request.
//
// A panic of f, except with [http.ErrAbortHandler], fails the test of [New] at its end; with a
// server of [NewServer], it ends the program.
func (s *Server) OnRequest(f func(Request)) {
	s.lock()
	defer s.mu.Unlock()
	s.onRequest = f
}

func (s *Server) callOnRequest(request Request) {
	defer s.acquireInHandler(s.onRequestSem)()
	s.lock()
	f := s.onRequest
	s.mu.Unlock()
	if f != nil {
		defer s.runs("OnRequest")()
		defer s.handlePanic("OnRequest")
		f(request)
	}
}

// handlePanic, if deferred, handles a panic of a function of the test. name is the API function,
// such as OnRequest, to which the test passed it. Without handlePanic, net/http would only log the
// panic and abort the response, and the test could pass, since the client retries.
func (s *Server) handlePanic(name string) {
	value := recover()
	switch {
	case value == nil: // the function returned, or called runtime.Goexit
		return
	case value != http.ErrAbortHandler && !s.storePanic(name, value): //nolint:errorlint // as net/http compares
		text := "msgpushtest: " + panicText(name, value) + "\n\n" + string(debug.Stack())
		go func() { panic(text) }() // net/http recovers the panics of this goroutine
		select {}
	}
	panic(http.ErrAbortHandler)
}

// storePanic stores a panic, which fails the test when it ends. It returns false if the server was
// not made by New.
func (s *Server) storePanic(name string, value any) bool {
	text := panicText(name, value)
	s.lock()
	defer s.mu.Unlock()
	if s.test.tb == nil {
		return false
	}
	// The function may panic again when the client retries. This is reported once.
	isStored := func(stored string) bool { return strings.HasPrefix(stored, text+"\n\n") }
	if !slices.ContainsFunc(s.test.panics, isStored) {
		s.test.panics = append(s.test.panics, text+"\n\n"+string(debug.Stack()))
	}
	return true
}

func panicText(name string, value any) string {
	return fmt.Sprintf("the function given to %s panicked: %v", name, value)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.begin() { // so that Close also waits after a hijack
		panic(http.ErrAbortHandler)
	}
	defer s.goroutines.Done()
	if s.hasFailed() {
		http.Error(w, "msgpushtest: the test has failed: see its log", http.StatusBadRequest)
		return
	}
	request := s.record(r)
	s.callOnRequest(request)

	s.lock()
	latency := s.latency
	retryAfter, ok := s.limit.allow(time.Now())
	s.mu.Unlock()
	response := rateLimited(retryAfter)
	if ok { // before the wait: after it, an abandoned request could take a fault injected meanwhile
		response = s.nextFault(request)
	}
	s.wait(r, latency)
	response.serve(s, w, r)
}

// begin adds to goroutines. It returns false if the server is closed.
func (s *Server) begin() bool {
	s.lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
		s.goroutines.Add(1)
		return true
	}
}

// wait waits for d. It aborts the response if the server is closed or, except on its own socket, if
// the client is gone. On the socket, net/http also cancels the context if the client has closed
// only its side and still reads the response. In another server, the wait must end with the client:
// httptest.Server.Close waits until the handlers have returned.
func (s *Server) wait(r *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	isOnSocket := !s.inMemory && r.Context().Value(http.ServerContextKey) == &s.http
	var gone <-chan struct{}
	if !isOnSocket {
		gone = r.Context().Done()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-gone:
		panic(http.ErrAbortHandler)
	case <-s.closed:
		panic(http.ErrAbortHandler)
	}
}
