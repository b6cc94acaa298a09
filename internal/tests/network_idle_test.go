package tests_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/msgpushtest"
)

// A balancer forwards connections in memory, until it forgets them: it then drops what either side
// sends, and closes nothing.
type balancer struct {
	service http.Handler
	silent  *atomic.Bool // of the connections since the last forget
	dials   atomic.Int32
	open    atomic.Int32 // connections that the client has not closed
}

// newBalancer makes a transport connect to the service through a balancer, and returns a client
// with the transport.
func newBalancer(
	t *testing.T,
	transport *http.Transport,
	service http.HandlerFunc,
	opts ...msgpush.Option,
) (*balancer, *msgpush.Client) {
	t.Helper()
	b := &balancer{service: service, silent: new(atomic.Bool)}
	transport.Proxy = nil
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { _ = (&http.Server{Handler: b.service, ReadHeaderTimeout: time.Hour}).Serve(listenerOf(server)) }()
		b.dials.Add(1)
		b.open.Add(1)
		return &balancedConn{silentConn: silentConn{client, b.silent}, open: &b.open}, nil
	}
	t.Cleanup(func() { stop(transport) })
	return b, fixtures.NewClientAt(
		t,
		"http://push.example.com",
		append(opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))...)
}

func (b *balancer) forget() {
	b.silent.Store(true)
	b.silent = new(atomic.Bool)
}

type balancedConn struct {
	silentConn
	open *atomic.Int32
	once sync.Once
}

func (c *balancedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.silentConn.Close()
}

// burst makes 16 calls at the same time, and returns when their connections are idle.
func burst(t *testing.T, client *msgpush.Client) {
	t.Helper()
	fixtures.Concurrently(16, func() {
		_, err := client.MailDetail(t.Context(), "7")
		assert.NoError(t, err)
	})
	synctest.Wait()
}

// respondAfterOneSecond responds so late that calls of a burst need a connection each.
func respondAfterOneSecond(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Second)
	fixtures.ServeJSON(fixtures.SuccessOf(`{"id":7}`))(w, r)
}

func TestOnlyOneAttemptFailsIfBalancerForgetsIdleConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		opts     []msgpush.Option
		deadline time.Duration
		longest  time.Duration
	}{
		"defaults": {
			[]msgpush.Option{fixtures.DefaultRetries},
			time.Hour,
			msgpush.DefaultAttemptTimeout + 400*time.Millisecond + time.Second,
		},
		"settings of docs/reliability.md": {
			[]msgpush.Option{fixtures.DefaultRetries, msgpush.WithAttemptTimeout(5 * time.Second)},
			30 * time.Second,
			5400*time.Millisecond + time.Second,
		},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			b, client := newBalancer(t, msgpush.NewTransport(), respondAfterOneSecond, tt.opts...)
			burst(t, client)
			require.EqualValues(t, 16, b.dials.Load())

			b.forget()
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			start := time.Now()
			_, err := client.MailDetail(ctx, "7")
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(start), tt.longest)
			assert.EqualValues(t, 17, b.dials.Load())
			assert.EqualValues(t, 1, b.open.Load(), "the forgotten connections are closed")
		})
	}
}

func TestCallAfterDeadlineOnForgottenConnectionSucceeds(t *testing.T) {
	for name, cause := range map[string]error{
		"deadline":              nil,
		"deadline with a cause": errors.New("the caller waits no longer"),
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			b, client := newBalancer(t, msgpush.NewTransport(), respondAfterOneSecond)
			burst(t, client)
			b.forget()
			// The deadline is before the timeout of the attempt.
			ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, cause)
			defer cancel()
			_, err := client.MailDetail(ctx, "7")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = client.MailDetail(t.Context(), "7")
			assert.NoError(t, err)
		})
	}
}

func TestCancelledCallClosesNoIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := newBalancer(t, msgpush.NewTransport(), respondAfterOneSecond)
		burst(t, client)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := client.MailDetail(ctx, "7")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		assert.EqualValues(t, 15, b.open.Load())
	})
}

func TestForgottenConnectionsOfAnyTransportAreClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		transport *http.Transport
		wrap      func(http.RoundTripper) http.RoundTripper
		attempts  int // of a call after the connections were forgotten
	}{
		"clone of NewTransport":                      {msgpush.NewTransport().Clone(), nil, 2},
		"another transport":                          {&http.Transport{MaxIdleConnsPerHost: 16}, nil, 2},
		"wrapper that forwards CloseIdleConnections": {msgpush.NewTransport(), forwardAll, 2},
		"wrapper without the method":                 {msgpush.NewTransport(), forwardRoundTrip, 3},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			b, client := newBalancer(t, tt.transport, respondAfterOneSecond, fixtures.ThreeAttempts)
			if tt.wrap != nil {
				client = fixtures.NewClientAt(t, "http://push.example.com", fixtures.ThreeAttempts,
					msgpush.WithHTTPClient(&http.Client{Transport: tt.wrap(tt.transport)}))
			}
			burst(t, client)
			b.forget()
			attempts := 0
			ctx := httptrace.WithClientTrace(t.Context(),
				&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { attempts++ }})
			_, err := client.MailDetail(ctx, "7")
			assert.Equal(t, tt.attempts, attempts)
			assert.Equal(t, tt.attempts == 2, err == nil)
		})
	}
}

// Clients may share a transport: the connections that a client finds may be forgotten before its
// first response.
func TestNewClientClosesForgottenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := msgpush.NewTransport()
		b, other := newBalancer(t, transport, respondAfterOneSecond)
		burst(t, other)
		b.forget()
		client := fixtures.NewClientAt(t, "http://push.example.com", fixtures.ThreeAttempts,
			msgpush.WithHTTPClient(&http.Client{Transport: transport}))
		_, err := client.MailDetail(t.Context(), "7")
		require.NoError(t, err)
		assert.EqualValues(t, 16+1, b.dials.Load())
	})
}

func forwardRoundTrip(rt http.RoundTripper) http.RoundTripper {
	return fixtures.RoundTripFunc(rt.RoundTrip)
}

func forwardAll(rt http.RoundTripper) http.RoundTripper {
	return struct{ *http.Transport }{rt.(*http.Transport)}
}

// Clients may share a transport, as they do by default. Calls to a service that does not respond
// must not close the connections to another.
func TestSilentServiceCostsFewConnectionsOfAnother(t *testing.T) {
	const healthyCallers = 8
	for name, tt := range map[string]struct {
		callers        int
		respondedFirst bool          // the connections of the callers were used before
		dialing        time.Duration // time of a dial
	}{
		"20 callers":                          {callers: 20},
		"100 callers":                         {callers: 100},
		"100 callers with reused connections": {callers: 100, respondedFirst: true},
		// Net/http keeps them.
		"connections that come too late": {callers: 20, dialing: 1300 * time.Millisecond},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			transport := msgpush.NewTransport()
			var isSilent atomic.Bool
			b, healthy := newBalancer(t, transport, func(w http.ResponseWriter, r *http.Request) {
				if r.Host == "silent.example.com" && isSilent.Load() {
					<-r.Context().Done()
					return
				}
				time.Sleep(10 * time.Millisecond)
				fixtures.ServeJSON(fixtures.SuccessOf(`{"id":7}`))(w, r)
			})
			dial := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "silent.example.com:80" {
					b.dials.Add(-1)
					time.Sleep(tt.dialing)
				}
				return dial(ctx, network, address)
			}
			silent := fixtures.NewClientAt(t, "http://silent.example.com", fixtures.DefaultRetries,
				msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			if tt.respondedFirst {
				fixtures.Concurrently(tt.callers, func() {
					_, err := silent.MailDetail(t.Context(), "7")
					assert.NoError(t, err)
				})
			}
			isSilent.Store(true)

			end := time.Now().Add(10 * time.Second)
			var all sync.WaitGroup
			for range tt.callers {
				all.Go(func() { callSilentUntil(t, end, silent) })
			}
			for range healthyCallers {
				all.Go(func() { callHealthyUntil(t, end, healthy) })
			}
			all.Wait()
			assert.LessOrEqual(t, b.dials.Load(), int32(2*healthyCallers))
		})
	}
}

// callSilentUntil calls a service that does not respond, with a timeout of a second.
func callSilentUntil(t *testing.T, end time.Time, client *msgpush.Client) {
	time.Sleep(rand.N(time.Second))
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := client.MailDetail(ctx, "7")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
}

// callHealthyUntil calls a service that responds.
func callHealthyUntil(t *testing.T, end time.Time, client *msgpush.Client) {
	for time.Now().Before(end) {
		_, err := client.MailDetail(t.Context(), "7")
		assert.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
	}
}

// net/http closes the connection of an attempt that timed out. If the client closed the idle
// connections too, a slow service would have to accept many more connections.
func TestTimeoutsOfSlowServiceCloseNoIdleConnections(t *testing.T) {
	const callers, calls = 100, 20
	synctest.Test(t, func(t *testing.T) {
		var timeouts atomic.Int32
		b, client := newBalancer(t, msgpush.NewTransport(), func(w http.ResponseWriter, r *http.Request) {
			if rand.N(20) == 0 {
				timeouts.Add(1)
				<-r.Context().Done()
				return
			}
			time.Sleep(rand.N(500 * time.Millisecond))
			fixtures.ServeJSON(fixtures.SuccessOf(`{"id":7}`))(w, r)
		}, fixtures.DefaultRetries)
		fixtures.Concurrently(callers, func() {
			time.Sleep(rand.N(time.Second))
			for range calls {
				_, err := client.MailDetail(t.Context(), "7")
				assert.NoError(t, err)
				time.Sleep(time.Second)
			}
		})
		t.Logf("%d dials, %d timeouts", b.dials.Load(), timeouts.Load())
		assert.LessOrEqual(t, b.dials.Load(), callers+timeouts.Load())
	})
}

// After a failover, each idle connection is reset when it is used: five attempts would not outlast eight
// of them.
func TestResetOfAReusedConnectionCostsAReadNoAttempt(t *testing.T) {
	for _, kind := range fixtures.KindsOfCalls() {
		if !kind.Idempotent {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			srv := msgpushtest.New(t)
			client := srv.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)
			srv.Inject(msgpushtest.Reset())
			_, err = kind.Do(t.Context(), client)
			assert.NotEqual(t, "no_response", msgpush.Outcome(err))
		})
	}
}
