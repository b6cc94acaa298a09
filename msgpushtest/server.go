package msgpushtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/msgpush"
)

// An Option configures a [Server].
type Option func(*settings)

type settings struct{ inMemory bool }

// InMemory makes the server use [net.Pipe] instead of a socket. Such a server also
// works inside a [testing/synctest] bubble, if it is made there. It is reached only
// through [Server.Client] and [Server.HTTPClient].
func InMemory() Option { return func(s *settings) { s.inMemory = true } }

// A Server is a fake server of the message push service. Make it with [New] or
// [NewServer]. It is safe for concurrent use.
type Server struct {
	// URL is the base URL, without a trailing slash.
	URL string

	settings
	http      http.Server
	transport *http.Transport
	running   sync.WaitGroup // the goroutines that Close waits for
	closed    chan struct{}  // closed when Close begins
	close     func()         // closes closed; may be called more than once

	// These are channels: a mutex would block a synctest bubble while a user's function
	// sleeps.
	onRequestSem chan struct{} // held while the function of OnRequest runs
	updateSem    chan struct{} // held while the function of Update or UpdateBetweenPages runs

	mu           sync.Mutex // never held while a user's function runs
	keys         []string   // all keys so far; the last is accepted
	keyLifetime  int        // in requests; 0 is unlimited
	keyUses      int        // requests accepted with the last key, since SetKeyLifetime
	limit        rateLimit
	latency      time.Duration
	records      *snapshot
	betweenPages func(*Records)
	onlyPages    map[listKey]bool // lists of at most one page that were served since UpdateBetweenPages
	onRequest    func(Request)
	faults       []Fault
	requests     []Request
	inTest       bool          // set by New
	panics       []string      // of functions of the test; only if inTest
	arrival      chan struct{} // closed when the next request arrives
}

// NewServer starts a server without records. The caller must call [Server.Close].
// It panics if it cannot listen, or if it is called inside a [testing/synctest]
// bubble without [InMemory].
func NewServer(opts ...Option) *Server {
	closed := make(chan struct{})
	s := &Server{
		transport:    &http.Transport{MaxIdleConnsPerHost: 1000, DialContext: new(net.Dialer).DialContext}, // in a browser, net/http otherwise uses fetch
		closed:       closed,
		close:        sync.OnceFunc(func() { close(closed) }),
		onRequestSem: make(chan struct{}, 1),
		updateSem:    make(chan struct{}, 1),
		keys:         []string{newKey()},
		records:      new(snapshot),
		arrival:      make(chan struct{}),
	}
	for _, opt := range opts {
		opt(&s.settings)
	}
	s.http.Handler = http.HandlerFunc(s.serve)
	s.http.DisableGeneralOptionsHandler = true // so that the response to OPTIONS * is an envelope, too
	s.http.ConnState = s.trackConn
	var listener net.Listener
	if s.inMemory {
		pipes := newPipeListener()
		s.transport.DialContext = pipes.dialContext
		listener = pipes
	} else {
		if inBubble() {
			panic("msgpushtest: time does not pass in a synctest bubble while a server listens on a socket: use the option InMemory()")
		}
		listener = httptest.NewUnstartedServer(nil).Listener
	}
	s.URL = "http://" + strings.TrimSuffix(listener.Addr().String(), ":80")
	s.running.Go(func() { _ = s.http.Serve(listener) }) // until Close
	return s
}

// inBubble reports whether the caller runs in a synctest bubble, as far as the stack
// trace shows it.
func inBubble() bool {
	trace := make([]byte, 100)
	trace = trace[:runtime.Stack(trace, false)]
	return strings.Contains(string(trace), "synctest bubble")
}

func newKey() string { return "test-" + rand.Text() }

// trackConn makes Close wait for the goroutines of connections: time does not pass
// in a synctest bubble once the test has ended, so nothing may sleep by then.
func (s *Server) trackConn(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.running.Add(1)
	case http.StateHijacked, http.StateClosed:
		s.running.Done()
	}
}

// closeGrace is how long Close waits for responses in progress before it aborts them.
const closeGrace = 200 * time.Millisecond

// Close stops the server and waits until the goroutines that it started have ended.
// Responses in progress are completed, or aborted after a short time. Close ends the
// waits of [Delay], [Endless], [Server.SetLatency] and [Server.WaitForRequest].
//
// A function that the server calls is not interrupted: Close waits for it, so it
// must not call Close. Close may be called more than once.
func (s *Server) Close() {
	s.close()
	s.transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = s.http.Shutdown(ctx) // if ctx ends first, s.http.Close aborts the rest
	_ = s.http.Close()
	s.running.Wait()
	s.transport.CloseIdleConnections()
}

// HTTPClient returns an HTTP client whose connections are closed when the server is
// closed. It is for code that calls [msgpush.NewClient] itself, with
// [msgpush.WithHTTPClient]. A server with the option [InMemory], or in a browser, can be
// reached only through it.
func (s *Server) HTTPClient() *http.Client { return &http.Client{Transport: s.transport} }

// Client returns a new client of the server. By default
//
//   - its access key is fixed: the one that the server accepts when Client is called,
//     even after SetAccessKey has replaced it;
//   - it treats [CodeAccessKey] as a rejected key;
//   - its retries wait for milliseconds, so that a call during an outage fails
//     within about 0.1 s, but it honours a Retry-After header and waits a second after a 429
//     without one;
//   - it uses [Server.HTTPClient].
//
// opts override these defaults: with [msgpush.WithAccessKeySource], the client takes
// its key from the source. Client panics if an option is invalid.
func (s *Server) Client(opts ...msgpush.Option) *msgpush.Client {
	key := s.AccessKey()
	fixedKey := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return key, nil })
	defaults := []msgpush.Option{
		msgpush.WithAccessKeySource(fixedKey), // an option, so that opts can override it
		msgpush.WithRejectedKeyCodes(CodeAccessKey),
		msgpush.WithRetry(msgpush.RetryPolicy{MinWait: time.Millisecond}),
		msgpush.WithHTTPClient(s.HTTPClient()),
	}
	client, err := msgpush.NewClient(s.URL, "", append(defaults, opts...)...)
	if err != nil {
		panic(fmt.Sprintf("msgpushtest: Client: %v", err))
	}
	return client
}

// AccessKey returns the key that the server accepts. At first it is a random key.
func (s *Server) AccessKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[len(s.keys)-1]
}

// SetAccessKey replaces the accepted key. The old key is rejected immediately. If key
// is empty, every key is rejected.
func (s *Server) SetAccessKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setKey(key)
}

// SetKeyLifetime makes access keys expire: after the server has accepted a key n
// times, it replaces the key with a new one, which AccessKey returns. Requests before
// the call do not count. If n is 0, the default, keys do not expire. For keys that
// expire after a time, call [Server.SetAccessKey] from [time.AfterFunc].
func (s *Server) SetKeyLifetime(n int) {
	if n < 0 {
		panic(fmt.Sprintf("msgpushtest: SetKeyLifetime: %d requests: n must not be negative", n))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keyLifetime, s.keyUses = n, 0
}

// setKey is called with mu held.
func (s *Server) setKey(key string) {
	s.keys, s.keyUses = append(s.keys, key), 0
}

// acceptKey reports whether a key is accepted, and counts its use.
func (s *Server) acceptKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" || key != s.keys[len(s.keys)-1] {
		return false
	}
	s.keyUses++
	if s.keyUses == s.keyLifetime {
		s.setKey(newKey())
	}
	return true
}

// SetLatency delays every response by d. If d is 0, the default, there is no delay.
func (s *Server) SetLatency(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = d
}

// SetRateLimit limits the requests to n in each window of time, which begins with
// its first request. Further requests get HTTP status 429, the code [CodeRateLimit]
// and a Retry-After header with the seconds until the window ends, rounded up. They
// do not use up an injected fault. If n is 0, the default, there is no limit.
func (s *Server) SetRateLimit(n int, window time.Duration) {
	if n < 0 || n > 0 && window <= 0 {
		panic(fmt.Sprintf("msgpushtest: SetRateLimit: %d requests in %v: n must not be negative, and window must be positive unless n is 0", n, window))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = rateLimit{max: n, window: window}
}

// A rateLimit counts the requests in a fixed window.
type rateLimit struct {
	max    int // 0 is unlimited
	window time.Duration
	start  time.Time // of the current window
	count  int       // requests in the current window
}

// allow reports whether a request is within the limit and, if not, returns the time
// until the window ends.
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

// OnRequest sets a function that is called with each request before the response. It
// replaces the previous function. If f is nil, no function is called. Calls do not overlap.
// f may change the server, for example its records, and it may sleep. A fault that f
// injects can already apply to this request. f must not close the server or call it through
// a client.
//
// A panic of f aborts the response. The test of a server that [New] returned then fails
// when it ends; with a server of [NewServer], the panic ends the program. A panic with
// [http.ErrAbortHandler] only aborts the response.
func (s *Server) OnRequest(f func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRequest = f
}

// callOnRequest calls the function of OnRequest, for one request at a time.
func (s *Server) callOnRequest(request Request) {
	select {
	case s.onRequestSem <- struct{}{}:
		defer func() { <-s.onRequestSem }()
	case <-s.closed:
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	f := s.onRequest
	s.mu.Unlock()
	if f != nil {
		defer s.handlePanic("OnRequest")
		f(request)
	}
}

// handlePanic, if deferred, handles a panic of a function of the test. name is the API
// function that received it, such as OnRequest. Otherwise, net/http would only log the panic
// and abort the response, and the test could pass, since the client retries.
func (s *Server) handlePanic(name string) {
	value := recover()
	switch {
	case value == nil: // the function returned, or called runtime.Goexit
		return
	case value != http.ErrAbortHandler && !s.storePanic(name, value): //nolint:errorlint // as net/http compares
		text := panicText(name, value) + "\n\n" + string(debug.Stack())
		go func() { panic(text) }() // net/http recovers the panics of this goroutine
		select {}
	}
	panic(http.ErrAbortHandler)
}

// storePanic stores a panic, which fails the test when it ends. It returns false if the
// server was not made by New.
func (s *Server) storePanic(name string, value any) bool {
	text := panicText(name, value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.inTest {
		return false
	}
	// The function may panic again when the client retries. This is reported once.
	if !slices.ContainsFunc(s.panics, func(stored string) bool { return strings.HasPrefix(stored, text+"\n\n") }) {
		s.panics = append(s.panics, text+"\n\n"+string(debug.Stack()))
	}
	return true
}

func (s *Server) panicked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.panics)
}

func panicText(name string, value any) string {
	return fmt.Sprintf("msgpushtest: the function given to %s panicked: %v", name, value)
}

// serve handles a request. To abort the response, it panics with
// [http.ErrAbortHandler].
//
// On a socket, it ignores the context of the request: net/http cancels the context also
// if the client closes only its side of the connection and still reads the response.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1) // so that Close also waits after a hijack
	defer s.running.Done()
	request := s.record(r)
	s.callOnRequest(request)

	s.mu.Lock()
	latency := s.latency
	retryAfter, ok := s.limit.allow(time.Now())
	s.mu.Unlock()
	response := rateLimited(retryAfter)
	if ok { // before the wait: after it, an abandoned request could take a fault injected meanwhile
		response = s.nextFault(request.Operation)
	}
	s.wait(r, latency)
	response.serve(s, w, r)
}

// wait waits for d. It aborts the response if the server is closed or, in memory, if the
// client is gone. On a socket, the client may have closed only its side; see serve.
func (s *Server) wait(r *http.Request, d time.Duration) {
	var gone <-chan struct{}
	if s.inMemory {
		gone = r.Context().Done()
	}
	if d <= 0 {
		return
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
