package msgpushtest_test

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const (
	madeOutside = "the server was made outside the synctest bubble that uses it: " +
		"make it inside, with the t of the bubble and the option InMemory()"
	madeInside = "the server was made inside a synctest bubble, and is used outside it: use it only inside"
)

func TestServerThatWasNotMadePanics(t *testing.T) {
	const text = "msgpushtest: the Server was not made by New or NewServer, which start it"
	for name, server := range map[string]*msgpushtest.Server{"zero": {}, "nil": nil} {
		for method, f := range reflect.ValueOf(server).Methods() {
			t.Run(name+", "+method.Name, func(t *testing.T) {
				var args []reflect.Value
				for arg := range method.Type.Ins() {
					args = append(args, reflect.Zero(arg))
				}
				args = args[1:] // without the receiver
				assert.PanicsWithValue(t, text, func() {
					if method.Type.IsVariadic() {
						f.CallSlice(args)
					} else {
						f.Call(args)
					}
				})
			})
		}
	}
}

// inMemoryAndOnSocket calls f with a server of each kind.
func inMemoryAndOnSocket(t *testing.T, f func(*testing.T, *msgpushtest.Server)) {
	t.Run("in memory", func(t *testing.T) { f(t, msgpushtest.New(t, msgpushtest.InMemory())) })
	t.Run("on a socket", func(t *testing.T) { f(t, msgpushtest.New(t)) })
}

func TestClientOfServerMadeOutsideBubblePanicsInside(t *testing.T) {
	inMemoryAndOnSocket(t, func(t *testing.T, server *msgpushtest.Server) {
		synctest.Test(t, func(t *testing.T) {
			assert.PanicsWithValue(t, "msgpushtest: HTTPClient: "+madeOutside, func() { server.HTTPClient() })
			assert.PanicsWithValue(t, "msgpushtest: Client: "+madeOutside, func() { server.Client() })
			assert.PanicsWithValue(t, "msgpushtest: Update: "+madeOutside, func() { server.SetRecords(msgpushtest.Records{}) })
			assert.PanicsWithValue(t, "msgpushtest: WaitForRequest: "+madeOutside,
				func() { _, _ = server.WaitForRequest(t.Context(), 1) })
		})
		assert.NoError(t, calls[msgpushtest.MPList](server.Client()))
	})
}

func TestClientOfServerMadeInsideBubblePanicsOutside(t *testing.T) {
	servers, done := make(chan *msgpushtest.Server), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // outside the bubble
		server := <-servers
		defer close(done)
		assert.PanicsWithValue(t, "msgpushtest: HTTPClient: "+madeInside, func() { server.HTTPClient() })
		assert.PanicsWithValue(t, "msgpushtest: Client: "+madeInside, func() { server.Client() })
		assert.PanicsWithValue(t, "msgpushtest: Update: "+madeInside, func() { server.SetRecords(msgpushtest.Records{}) })
	})
	synctest.Test(t, func(t *testing.T) {
		servers <- msgpushtest.New(t, msgpushtest.InMemory())
		<-done
	})
	wg.Wait()
}

func TestRequestsOfAServerInABubbleCanBeReadAfterwards(t *testing.T) {
	var server *msgpushtest.Server
	synctest.Test(t, func(t *testing.T) {
		server = msgpushtest.New(t, msgpushtest.InMemory())
		require.NoError(t, calls[msgpushtest.MPList](server.Client()))
	})
	assert.Len(t, server.Requests(), 1)
}

func TestNewWithTheTestOutsideTheBubblePanics(t *testing.T) {
	synctest.Test(t, func(inner *testing.T) {
		assert.PanicsWithValue(inner,
			"msgpushtest: New: the test is the one outside the synctest bubble: give New the t of the function of synctest.Test",
			func() { msgpushtest.New(t, msgpushtest.InMemory()) })
		assert.NotPanics(inner, func() { msgpushtest.New(inner, msgpushtest.InMemory()) })
	})
}

func TestUpdateInAnotherFunctionWorks(t *testing.T) {
	server := msgpushtest.New(t)
	add := func() {
		server.Update(func(r *msgpushtest.Records) { r.MPChannels = append(r.MPChannels, msgpush.MPChannel{}) })
	}
	for _, name := range []string{"OnRequest", "If", "Respond"} {
		before := len(server.Records().MPChannels)
		_ = userFunctions[name](server, add)
		assert.Greater(t, len(server.Records().MPChannels), before, name)
	}
	server.ClearFaults()
}

// A wait is a mistake of a test: without an end of the wait, the test would hang.
type wait struct {
	name string
	do   func(*msgpushtest.Server)
	want string // in the error
}

const inFunction = "has not returned after 5s: it must return soon, and must not wait for another request, " +
	"another update, Close, or a lock or channel of the test"

var waits = []wait{
	{"Update in Update", func(s *msgpushtest.Server) {
		s.Update(func(*msgpushtest.Records) { s.Update(func(*msgpushtest.Records) {}) })
	}, "the function given to Update " + inFunction},
	{"SetRecords in Update", func(s *msgpushtest.Server) {
		s.Update(func(*msgpushtest.Records) { s.SetRecords(msgpushtest.Records{}) })
	}, inFunction},
	{"Update in UpdateBetweenPages", func(s *msgpushtest.Server) {
		_ = userFunctions["UpdateBetweenPages"](s, func() { s.Update(func(*msgpushtest.Records) {}) })
	}, inFunction},
	{"Update that waits for an Update in another goroutine", func(s *msgpushtest.Server) {
		s.Update(func(*msgpushtest.Records) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Update(func(*msgpushtest.Records) {})
			}()
			<-done
		})
	}, inFunction},
	{"Update that iterates while UpdateBetweenPages is set", func(s *msgpushtest.Server) {
		s.SetRecords(msgpushtest.SampleRecords())
		s.UpdateBetweenPages(func(*msgpushtest.Records) {})
		client := s.Client()
		s.Update(func(*msgpushtest.Records) {
			for _, err := range client.ForwardLogs(msgpush.ForwardLogParams{}).All(ctx) {
				if err != nil {
					return
				}
			}
		})
	}, inFunction},
	{"request in OnRequest", func(s *msgpushtest.Server) {
		_ = userFunctions["OnRequest"](s, func() { _ = calls[msgpushtest.ForwardRuleList](s.Client()) })
	}, "the function given to OnRequest " + inFunction},
	{"request of another client in OnRequest", func(s *msgpushtest.Server) {
		other, _ := msgpush.NewClient(s.URL, s.AccessKey())
		_ = userFunctions["OnRequest"](s, func() { _ = calls[msgpushtest.ForwardRuleList](other) })
	}, inFunction},
	{"request in If", func(s *msgpushtest.Server) {
		_ = userFunctions["If"](s, func() { _ = calls[msgpushtest.ForwardRuleList](s.Client()) })
	}, "the function given to If " + inFunction},
	{"page in UpdateBetweenPages", func(s *msgpushtest.Server) {
		client := s.Client()
		_ = userFunctions["UpdateBetweenPages"](s, func() {
			_, _ = client.MPList(ctx, msgpush.PageRequest{Current: 2})
		})
	}, "the function given to UpdateBetweenPages " + inFunction},
	{"Close in OnRequest", func(s *msgpushtest.Server) {
		_ = userFunctions["OnRequest"](s, s.Close)
	}, inFunction},
	{"OnRequest that never returns", func(s *msgpushtest.Server) {
		_ = userFunctions["OnRequest"](s, func() { select {} })
	}, inFunction},
	{"UpdateBetweenPages that never returns", func(s *msgpushtest.Server) {
		_ = userFunctions["UpdateBetweenPages"](s, func() { select {} })
	}, inFunction},
	{"Respond that never returns", func(s *msgpushtest.Server) {
		s.Inject(msgpushtest.Respond(func(http.ResponseWriter, *http.Request) { select {} }))
		client := s.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}), msgpush.WithTimeout(time.Second))
		_, _ = client.MPList(ctx, msgpush.PageRequest{})
		s.Close()
	}, "Close has waited 5s for the function given to Respond"},
	{"WaitForRequest without a request",
		func(s *msgpushtest.Server) {
			_ = calls[msgpushtest.MPList](s.Client())
			_, _ = s.WaitForRequest(ctx, 2)
		},
		"WaitForRequest has waited 5s for request 2 (1 so far): " +
			"send it, or give WaitForRequest the number of the one that arrives"},
}

// In real time: in a bubble, the runtime reports the deadlock.
func TestWaitOfFiveSecondsFailsTheTest(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for five seconds")
	}
	t.Parallel()
	tests := make([]tb, len(waits))
	var wg sync.WaitGroup
	for i, tt := range waits {
		wg.Go(func() { tt.inTest(&tests[i]) })
	}
	wg.Wait()
	for i, tt := range waits {
		require.NotEmpty(t, tests[i].errors, tt.name)
		assert.Contains(t, tests[i].errors[0], tt.want, tt.name)
	}
}

func (w wait) inTest(test *tb) {
	server := msgpushtest.New(test)
	w.do(server)
	server.ClearFaults()
	server.OnRequest(nil)
	test.end()
}

// After the failure, a client gets a response that it does not retry.
func TestRequestsFailAfterAWaitOfFiveSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for five seconds")
	}
	t.Parallel()
	server := msgpushtest.New(&tb{})
	other, err := msgpush.NewClient(server.URL, server.AccessKey())
	require.NoError(t, err)
	server.OnRequest(func(msgpushtest.Request) { select {} })
	assert.ErrorContains(t, calls[msgpushtest.MPList](other),
		"HTTP 400 Bad Request: msgpushtest: the test has failed: see its log (2 attempts)")
	server.Close()
}

func TestUpdateWorksAfterClose(t *testing.T) {
	server := msgpushtest.New(t)
	server.Close()
	for range 20 { // the choice of select is random
		server.SetRecords(msgpushtest.SampleRecords())
	}
	assert.Len(t, server.Records().MPChannels, 3)
}

func TestWaitForRequestWithDeadlineLogsAndGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for five seconds")
	}
	t.Parallel()
	test := &tb{}
	server := msgpushtest.New(test)
	bounded, cancel := context.WithTimeout(ctx, 5500*time.Millisecond)
	defer cancel()
	_, err := server.WaitForRequest(bounded, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	test.end()
	assert.Empty(t, test.errors)
	require.Len(t, test.logs, 1)
	assert.Contains(t, test.logs[0], "WaitForRequest has waited 5s for request 1 (0 so far)")
}

func TestFunctionMaySleepInABubble(t *testing.T) {
	for _, name := range []string{"OnRequest", "UpdateBetweenPages", "Respond", "If"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := msgpushtest.New(t, msgpushtest.InMemory())
				var wg sync.WaitGroup
				wg.Go(func() { _ = userFunctions[name](server, func() { time.Sleep(time.Hour) }) })
				synctest.Wait()
				start := time.Now()
				server.Close()
				assert.Equal(t, time.Hour, time.Since(start))
				wg.Wait()
				server.ClearFaults()
			})
		})
	}
}

func TestRequestInRespondOrUpdateWorks(t *testing.T) {
	for _, name := range []string{"Respond", "Update"} {
		server := msgpushtest.New(t)
		var err error
		_ = userFunctions[name](server, func() { err = calls[msgpushtest.ForwardRuleList](clientOf(t, server)) })
		assert.NoError(t, err, name)
	}
}

func TestRejectedRequestFailsTheTestIfAsked(t *testing.T) {
	send := func(opts ...msgpushtest.Option) []string {
		test := &tb{}
		server := msgpushtest.New(test, opts...)
		client := server.Client()
		_ = calls[msgpushtest.MPList](client)
		_, _ = client.MailDetail(ctx, "no")
		_, _ = msgpush.Call[any](ctx, client,
			msgpush.Request{Method: http.MethodPost, Path: "/api/open/" + server.AccessKey()})
		server.Inject(msgpushtest.RejectKey())
		_ = calls[msgpushtest.MPList](client)
		server.SetRateLimit(1, time.Hour)
		_ = calls[msgpushtest.MPList](client)
		test.end()
		return test.errors
	}
	assert.Empty(t, send())
	assert.Equal(t, []string{
		`msgpushtest: the server rejected GET /api/open/mail/detail: code 404: there is no record with the mailId "no"`,
		"msgpushtest: the server rejected POST /api/open/[redacted]: code 404: there is no operation at /api/open/[redacted]",
	}, send(msgpushtest.FailOnRejection()))
	assert.Panics(t, func() { msgpushtest.NewServer(msgpushtest.FailOnRejection()) })
}
