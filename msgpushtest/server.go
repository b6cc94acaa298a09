package msgpushtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"example.com/msgpush"
)

// An Option configures a [Server].
type Option func(*settings)

type settings struct {
	inMemory        bool
	failOnRejection bool
	rejectedKeyCode int
}

// FailOnRejection makes the test of [New] fail, when it ends, for each request that the server itself
// rejected, such as one with an unknown member, or with a key that was replaced. Faults such as [RejectKey]
// do not count. [NewServer] panics with this option.
func FailOnRejection() Option { return func(s *settings) { s.failOnRejection = true } }

// InMemory makes the server use [net.Pipe] instead of a socket, as a [testing/synctest] bubble requires. Its
// URL can be reached only with [Server.Client], [Server.Options] and [Server.HTTPClient].
func InMemory() Option { return func(s *settings) { s.inMemory = true } }

// RejectedKeyCode sets the envelope code with which the server rejects an access key. The default is
// [CodeAccessKey]. Pass the code of your service: the API document shows none. The code of a success, 200,
// panics.
func RejectedKeyCode(code int) Option {
	if code == codeSuccess {
		panic(fmt.Sprintf("msgpushtest: RejectedKeyCode: %d is the code of a success", code))
	}
	return func(s *settings) { s.rejectedKeyCode = code }
}

// A Server is a fake server of the message push service, made by [New] or [NewServer]. It is safe for
// concurrent use. Another HTTP server can serve it as an [http.Handler].
//
// A function that a test passes to the server runs in a goroutine of the server, except the one of
// [Server.Update]. If it panics, net/http logs the panic and aborts the response, and the test of [New]
// fails.
type Server struct {
	// URL is the base URL, without a trailing slash.
	URL string

	settings
	deadline  time.Time // of the test; zero if it is not known
	http      *httptest.Server
	transport *http.Transport
	closed    chan struct{} // closed when Close begins
	close     func()        // closes closed; may be called more than once

	// These are held while a function of the test runs. They are channels: while a goroutine waits for a
	// mutex, time does not pass in a synctest bubble.
	deciding chan struct{} // the functions of OnRequest and If
	updating chan struct{} // the functions of Update and UpdateBetweenPages

	mu           sync.Mutex // never held while a function of the test runs; guards the fields below
	key          string     // that the server accepts
	replacedKeys map[string]bool
	latency      time.Duration
	store        store
	faults       []*queuedFault
	onRequest    func(Request)
	requests     []Request
	arrival      chan struct{} // closed when the next request arrives
	misuses      []string      // error texts for the test
}

// NewServer starts a server without records, for a program, which must call [Server.Close]. It panics if it
// cannot listen.
func NewServer(opts ...Option) *Server {
	s := newServer(opts)
	if s.failOnRejection {
		s.Close()
		panic("msgpushtest: NewServer: there is no test that FailOnRejection could fail: use New")
	}
	return s
}

func newServer(opts []Option) *Server {
	closed := make(chan struct{})
	s := &Server{
		settings:     settings{rejectedKeyCode: CodeAccessKey},
		closed:       closed,
		close:        sync.OnceFunc(func() { close(closed) }),
		deciding:     make(chan struct{}, 1),
		updating:     make(chan struct{}, 1),
		key:          "test-" + rand.Text(),
		replacedKeys: map[string]bool{},
		arrival:      make(chan struct{}),
	}
	for _, opt := range opts {
		opt(&s.settings)
	}
	s.transport = &http.Transport{MaxIdleConnsPerHost: 1000}
	if s.inMemory {
		pipes := newPipeListener()
		config := &http.Server{Handler: s} //nolint:gosec // without a timeout of headers, as httptest makes it
		s.http = &httptest.Server{Listener: pipes, Config: config}
		s.transport.DialContext = pipes.dialContext
	} else {
		s.http = httptest.NewUnstartedServer(s)
		s.transport.DialContext = s.dialContext
	}
	s.http.Start()
	s.URL = s.http.URL
	return s
}

// dialContext connects to any address. If the server is closed, it does not connect to the server's address,
// where another program may listen by now.
func (s *Server) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if s.isClosed() && address == s.http.Listener.Addr().String() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: closedError{}}
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// A closedError is the error of a connection to a server that is closed.
type closedError struct{}

func (closedError) Error() string {
	return "connection refused: the fake server is stopped, since Close was called or its test has ended"
}

// Unwrap returns the error of a socket.
func (closedError) Unwrap() error { return os.NewSyscallError("connect", connRefused()) }

func (s *Server) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// closeGrace is how long Close waits for responses in progress before it aborts them.
const closeGrace = 200 * time.Millisecond

// Close stops the server, and may be called more than once. It completes responses in progress, or aborts
// them after a short time. It ends the waits of [Delay], [Endless], [Server.SetLatency] and
// [Server.WaitForRequest]. Afterwards, the errors of [Server.Client] and [Server.HTTPClient] say that the
// server is stopped, and [Server.ServeHTTP] responds so with HTTP status 503.
//
// Close blocks until the functions that the test passed to the server have returned, so they must not call
// Close.
func (s *Server) Close() {
	s.close()
	defer time.AfterFunc(closeGrace, s.http.CloseClientConnections).Stop()
	s.http.Close()
}

// HTTPClient returns an HTTP client for code that sends requests without package msgpush. Its idle
// connections are closed when the server is closed.
func (s *Server) HTTPClient() *http.Client { return &http.Client{Transport: s.transport} }

// Options returns the options with which code that calls [msgpush.NewClient] itself can use the server, also
// with [InMemory]. The code passes [Server.URL] and a key, such as [Server.AccessKey]. The code puts its own
// options behind these, so that a test uses the options of the program. With the options,
//
//   - the client sends its requests with [Server.HTTPClient], and accepts the URL, which begins with http://;
//   - its retries wait for milliseconds, but it honours Retry-After, and waits a second after a 429 without
//     it.
//
// They do not have [msgpush.WithRejectedKeyCodes]. So a test of a rejected key finds out whether the code
// sets it: start the server with the [RejectedKeyCode] of the service.
func (s *Server) Options() []msgpush.Option {
	return []msgpush.Option{
		msgpush.WithHTTPClient(s.HTTPClient()),
		msgpush.WithPlainHTTP(),
		msgpush.WithRetry(msgpush.RetryPolicy{MinWait: time.Millisecond}),
	}
}

// Client returns a new client of the server. It has the options of [Server.Options], and recognizes the code
// of a rejected key; opts override both. It sends the key that the server accepts when Client is called:
// after ReplaceKey, the server rejects it. Client panics if an option is invalid.
func (s *Server) Client(opts ...msgpush.Option) *msgpush.Client {
	opts = append(append(s.Options(), msgpush.WithRejectedKeyCodes(s.rejectedKeyCode)), opts...)
	client, err := msgpush.NewClient(s.URL, s.AccessKey(), opts...)
	if err != nil {
		// opts may have WithAccessKeySource, which excludes a key. Only NewClient can find that out. A
		// source of the server's key in front of opts would change the error of a rejected key.
		client, err = msgpush.NewClient(s.URL, "", opts...)
	}
	if err != nil {
		panic(fmt.Sprintf("msgpushtest: Client: %v", err))
	}
	return client
}

// SetLatency delays every response by d. Records are read after the delay. SetLatency panics if d is
// negative.
func (s *Server) SetLatency(d time.Duration) {
	checkDuration("SetLatency", d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = d
}

func (s *Server) currentLatency() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latency
}

// checkDuration panics if d is negative.
func checkDuration(name string, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("msgpushtest: %s: the duration %v is negative", name, d))
	}
}

// OnRequest sets a function that is called with each request before the response, or none if f is nil. Calls
// do not overlap. f may change the server, and sleep. A fault that f injects can already apply to this
// request. f must not close the server or send it a request.
func (s *Server) OnRequest(f func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRequest = f
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.isClosed() {
		http.Error(w, "the fake server is stopped", http.StatusServiceUnavailable)
		return
	}
	defer s.reportPanic()
	request := s.record(r)
	// The fault is chosen before the wait: after it, an abandoned request could take a later fault.
	fault, badRecords := s.decide(request)
	s.wait(r, s.currentLatency())
	fault.serve(&responder{s, badRecords}, w, r)
}

// reportPanic makes the test of New fail if a function of it panicked: a retry of the client would hide that.
func (s *Server) reportPanic() {
	value := recover()
	if value == nil {
		return
	}
	if value != any(http.ErrAbortHandler) {
		s.addMisuse(fmt.Sprintf("a function of the test panicked: %v\n%s", value, debug.Stack()))
	}
	panic(value)
}

// decide calls the function of OnRequest and returns the faults of nextFault.
func (s *Server) decide(request Request) (used Fault, badRecords []*queuedFault) {
	select {
	case s.deciding <- struct{}{}:
	case <-s.closed:
		panic(http.ErrAbortHandler)
	}
	defer func() { <-s.deciding }()
	s.mu.Lock()
	onRequest := s.onRequest
	s.mu.Unlock()
	if onRequest != nil {
		onRequest(request)
	}
	return s.nextFault(request)
}

// wait waits for d. It aborts the response if the server is closed or the client is gone.
func (s *Server) wait(r *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-s.closed:
		panic(http.ErrAbortHandler)
	}
}
