package msgpushtest_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A tb stands for a test. It stores the reports of the server.
type tb struct {
	mu      sync.Mutex
	failed  bool
	errors  []string
	logs    []string
	cleanup []func()
}

func (tb *tb) Helper()          {}
func (tb *tb) Cleanup(f func()) { tb.cleanup = append(tb.cleanup, f) }
func (tb *tb) Failed() bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.failed
}
func (tb *tb) Errorf(format string, args ...any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.failed = true
	tb.errors = append(tb.errors, fmt.Sprintf(format, args...))
}
func (tb *tb) Logf(format string, args ...any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.logs = append(tb.logs, fmt.Sprintf(format, args...))
}

func TestNewClosesServerAndLogsRequests(t *testing.T) {
	for _, failed := range []bool{false, true} {
		test := &tb{failed: failed}
		server := msgpushtest.New(test)
		for range 70 {
			require.NoError(t, calls[msgpushtest.MPList](server.Client()))
		}
		test.end()
		assert.Error(t, calls[msgpushtest.MPList](clientOf(t, server)), "the server is closed")
		if !failed {
			assert.Empty(t, test.logs)
			continue
		}
		require.Len(t, test.logs, 51, "the last 50")
		assert.Equal(t, "msgpushtest: 70 requests arrived", test.logs[0])
		assert.Contains(t, test.logs[50], "70: ")
		assert.Contains(t, test.logs[50], "POST /api/open/mp/list")
		assert.NotContains(t, strings.Join(test.logs, ""), server.AccessKey())
	}
}

// end ends the test: it calls the cleanup functions.
func (tb *tb) end() {
	for _, f := range tb.cleanup {
		f()
	}
}

func TestFaultThatWasNeverUsedFailsTheTest(t *testing.T) {
	unused := func(faults ...string) []string {
		for i, f := range faults {
			faults[i] = "msgpushtest: the fault " + f + " was never used: send a request that uses it, or call ClearFaults"
		}
		return faults
	}
	call := func(server *msgpushtest.Server, operation string) { _ = calls[operation](clientOf(t, server)) }
	status := msgpushtest.Status(503)
	tests := []struct {
		name string
		test func(*msgpushtest.Server)
		want []string
	}{
		{"no fault", func(*msgpushtest.Server) {}, nil},
		{"no request", func(s *msgpushtest.Server) { s.Inject(status) }, unused("Status(503) for every operation")},
		{"used", func(s *msgpushtest.Server) {
			s.Inject(status)
			call(s, msgpushtest.MPList)
		}, nil},
		{"cleared", func(s *msgpushtest.Server) {
			s.Inject(status, msgpushtest.Reset().Always())
			s.ClearFaults()
		}, nil},
		{"injected again after it was used", func(s *msgpushtest.Server) {
			s.Inject(status)
			call(s, msgpushtest.MPList)
			s.Inject(status)
		}, unused("Status(503) for every operation")},
		{"one of two", func(s *msgpushtest.Server) {
			s.Inject(msgpushtest.Status(500), status)
			call(s, msgpushtest.MPList)
		}, unused("Status(503) for every operation")},
		{"for another operation", func(s *msgpushtest.Server) {
			s.Inject(status.For(msgpushtest.ForwardRuleList))
			call(s, msgpushtest.MPList)
		}, unused("Status(503) for ForwardRuleList")},
		{"for two other operations", func(s *msgpushtest.Server) {
			s.Inject(status.For(msgpushtest.ForwardRuleList, msgpushtest.MailDetail))
			call(s, msgpushtest.MPList)
		}, unused("Status(503) for ForwardRuleList and MailDetail")},
		{"Always, used once", func(s *msgpushtest.Server) {
			s.Inject(status.Always())
			call(s, msgpushtest.MPList)
		}, nil},
		{"Always, used, then another fault", func(s *msgpushtest.Server) {
			s.Inject(status.For(msgpushtest.MPList).Always())
			call(s, msgpushtest.MPList)
			s.Inject(msgpushtest.Reset().For(msgpushtest.MailDetail))
		}, unused("Reset for MailDetail")},
		{"Always, no request", func(s *msgpushtest.Server) {
			s.Inject(status.Always().For(msgpushtest.MPList))
		}, unused("Status(503).Always() for MPList")},
		{"Always, injected again after it was used and cleared", func(s *msgpushtest.Server) {
			always := status.Always()
			s.Inject(always)
			call(s, msgpushtest.MPList)
			s.ClearFaults()
			s.Inject(always)
		}, unused("Status(503).Always() for every operation")},
		{"request rejected by the rate limit", func(s *msgpushtest.Server) {
			s.SetRateLimit(1, time.Hour)
			call(s, msgpushtest.MPList)
			s.Inject(status)
			call(s, msgpushtest.MPList)
		}, unused("Status(503) for every operation")},
		{"Times, one request too few",
			func(s *msgpushtest.Server) {
				s.Inject(status.For(msgpushtest.MPList).Times(3))
				call(s, msgpushtest.MPList)
			},
			[]string{
				"msgpushtest: the fault Status(503).Times(3) for MPList was used by 1 of 3 requests: " +
					"send a request that uses it, or call ClearFaults",
			}},
		{"Always after Times", func(s *msgpushtest.Server) {
			s.Inject(status.Times(3).Always())
			call(s, msgpushtest.MPList)
		}, nil},
		{"Times after Always", func(s *msgpushtest.Server) {
			s.Inject(status.Always().Times(1))
			call(s, msgpushtest.MPList)
			assert.NoError(t, calls[msgpushtest.MPList](s.Client()))
		}, nil},
		{"server closed before the end", func(s *msgpushtest.Server) {
			s.Inject(status)
			s.Close()
		}, unused("Status(503) for every operation")},
		{"every kind",
			func(s *msgpushtest.Server) {
				s.Inject(
					msgpushtest.Fault{},
					msgpushtest.ErrorResponse(1001, "no", nil),
					msgpushtest.RejectKey(),
					msgpushtest.Delay(time.Hour),
					msgpushtest.HTML().
						WithStatus(502),
					msgpushtest.Garbage(),
					msgpushtest.Redirect("/x"),
					msgpushtest.Endless(),
					msgpushtest.Reset(),
					msgpushtest.ResetInBody(),
					msgpushtest.Truncate(),
					msgpushtest.Respond(http.NotFound),
				)
			},
			unused("Fault{} for every operation", `ErrorResponse(1001, "no") for every operation`,
				"RejectKey for every operation", "Delay(1h0m0s) for every operation", "HTML.WithStatus(502) for every operation",
				"Garbage for every operation", `Redirect("/x") for every operation`, "Endless for every operation",
				"Reset for every operation", "ResetInBody for every operation", "Truncate for every operation",
				"Respond for every operation")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			test := &tb{}
			tt.test(msgpushtest.New(test))
			assert.Empty(t, test.errors, "before the end of the test")
			test.end()
			assert.Equal(t, tt.want, test.errors)
		})
	}
}

// userFunctions holds the ways to pass a function to a server, by the name of the API, such as
// OnRequest. Each one also makes the server call the passed function.
var userFunctions = map[string]func(*msgpushtest.Server, func()) error{
	"OnRequest": func(s *msgpushtest.Server, f func()) error {
		s.OnRequest(func(msgpushtest.Request) { f() })
		return calls[msgpushtest.MPList](s.Client())
	},
	"UpdateBetweenPages": func(s *msgpushtest.Server, f func()) error {
		s.UpdateBetweenPages(func(*msgpushtest.Records) { f() })
		_, err := s.Client().MPList(ctx, msgpush.PageRequest{Current: 2})
		return err
	},
	"Respond": func(s *msgpushtest.Server, f func()) error {
		s.Inject(msgpushtest.Respond(func(http.ResponseWriter, *http.Request) { f() }))
		return calls[msgpushtest.MPList](s.Client())
	},
	"If": func(s *msgpushtest.Server, f func()) error {
		s.Inject(msgpushtest.Status(503).If(func(msgpushtest.Request) bool { f(); return false }))
		return calls[msgpushtest.MPList](s.Client())
	},
	"Update": func(s *msgpushtest.Server, f func()) (err error) {
		defer func() { err = fmt.Errorf("%v", recover()) }()
		s.Update(func(*msgpushtest.Records) { f() })
		return nil
	},
}

func TestPanicOfFunctionFailsTheTest(t *testing.T) {
	for name, call := range userFunctions {
		for kind, value := range map[string]any{"string": "boom", "error": errors.New("boom"), "slice": []string{"boom"}} {
			t.Run(name+", "+kind, func(t *testing.T) {
				test := &tb{}
				server := msgpushtest.New(test, msgpushtest.InMemory())
				err := call(server, func() { panic(value) })
				if name != "Respond" { // the fault of Respond is used once, so the retry succeeds
					assert.Error(t, err)
				}
				server.OnRequest(nil)
				server.UpdateBetweenPages(nil)
				server.ClearFaults()
				server.Update(func(r *msgpushtest.Records) { r.MPChannels = append(r.MPChannels, msgpush.MPChannel{ID: 1}) })
				assert.NoError(t, calls[msgpushtest.MPList](server.Client()), "the server can be used afterwards")
				assert.Empty(t, test.errors, "before the end of the test")
				test.end()
				require.Len(t, test.errors, 1, "once, although the client retried the request")
				assert.Contains(t, test.errors[0], fmt.Sprintf("msgpushtest: the function given to %s panicked: %v\n", name, value))
				assert.Contains(t, test.errors[0], "testing_test.go:", "stack trace")
			})
		}
	}
}

func TestPanicOfUpdateInOnRequestFailsTheTest(t *testing.T) {
	test := &tb{}
	server := msgpushtest.New(test)
	server.OnRequest(func(msgpushtest.Request) { server.Update(func(*msgpushtest.Records) { panic("boom") }) })
	assert.Error(t, calls[msgpushtest.MPList](clientOf(t, server)))
	test.end()
	require.Len(t, test.errors, 2)
	assert.Contains(t, test.errors[0], "given to Update panicked: boom")
	assert.Contains(t, test.errors[1], "given to OnRequest panicked: boom")
}

func TestPanicAtTheEndOfTheTestFailsTheTest(t *testing.T) {
	test := &tb{}
	server := msgpushtest.New(test)
	server.OnRequest(func(msgpushtest.Request) {
		_, err := server.WaitForRequest(ctx, 99) // until the server is closed
		panic(err)
	})
	ended := make(chan error)
	go func() { ended <- calls[msgpushtest.MPList](clientOf(t, server)) }()
	_, err := server.WaitForRequest(ctx, 1)
	require.NoError(t, err)
	test.end()
	assert.Error(t, <-ended)
	require.Len(t, test.errors, 1)
	assert.Contains(t, test.errors[0], "given to OnRequest panicked: msgpushtest: WaitForRequest")
}

func TestAbortedResponseDoesNotFailTheTest(t *testing.T) {
	for _, name := range []string{"OnRequest", "UpdateBetweenPages", "Respond", "If"} {
		t.Run(name, func(t *testing.T) {
			test := &tb{}
			server := msgpushtest.New(test)
			_ = userFunctions[name](server, func() { panic(http.ErrAbortHandler) })
			server.ClearFaults()
			test.end()
			assert.Empty(t, test.errors)
		})
	}
}

// In a separate process, since nothing else can end the wait of a test in its own function.
func TestFunctionOfUpdateThatDoesNotReturnEndsTheProgram(t *testing.T) {
	const variable = "MSGPUSHTEST_UPDATE"
	if os.Getenv(variable) != "" {
		msgpushtest.New(t).Update(func(*msgpushtest.Records) { select {} })
	}
	if testing.Short() {
		t.Skip("waits for seven seconds")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"=1")
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out),
		"panic: msgpushtest: the function given to Update does not return: it must return soon")
}

func TestFunctionOfUpdateThatReturnsLateDoesNotEndTheProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for eight seconds")
	}
	t.Parallel()
	test := &tb{}
	server := msgpushtest.New(test)
	server.Update(func(*msgpushtest.Records) { <-time.After(6 * time.Second) })
	server.Update(func(*msgpushtest.Records) { <-time.After(2 * time.Second) })
	test.end()
	require.Len(t, test.errors, 1)
	assert.Contains(t, test.errors[0], "given to Update has not returned")
}

// In a separate process, since the panic ends the program.
func TestPanicOfFunctionEndsProgramWithNewServer(t *testing.T) {
	const variable = "MSGPUSHTEST_PANIC"
	if name := os.Getenv(variable); name != "" {
		server := msgpushtest.NewServer()
		if name == "Update" { // userFunctions recovers the panic
			server.Update(func(*msgpushtest.Records) { panic("boom") })
		}
		_ = userFunctions[name](server, func() { panic("boom") })
		return // with the exit status 0
	}
	if runtime.GOOS == "js" {
		t.Skip("js starts no processes")
	}
	for name := range userFunctions {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestPanicOfFunctionEndsProgramWithNewServer$")
			cmd.Env = append(os.Environ(), variable+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
			assert.Equal(t, 2, exit.ExitCode())
			assert.Regexp(t, "panic: .*boom", string(out))
			assert.Contains(t, string(out), name)
		})
	}
}
