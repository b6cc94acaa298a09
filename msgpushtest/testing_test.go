package msgpushtest_test

import (
	"go/build"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestNewClosesServerAndLogsRequestsOfAFailedTest(t *testing.T) {
	run := func(test *tb) *msgpushtest.Server {
		server := msgpushtest.New(test)
		for range 70 {
			require.NoError(t, listChannels(server.Client()))
		}
		test.end()
		assert.Error(t, listChannels(clientOf(server)), "the server is closed")
		return server
	}
	passed := &tb{}
	run(passed)
	assert.Empty(t, passed.logs)

	failed := &tb{failed: true}
	server := run(failed)
	require.Len(t, failed.logs, 1)
	lines := strings.Split(failed.logs[0], "\n")
	require.Len(t, lines, 51, "the last 50")
	assert.Equal(t, "msgpushtest: requests that arrived: 70", lines[0])
	assert.Contains(t, lines[50], "70: ")
	assert.Contains(t, lines[50], "POST /api/open/mp/list")
	assert.NotContains(t, failed.logs[0], server.AccessKey())
}

// errorsOf runs a test with a server of New, and returns the errors that its end reports.
func errorsOf(t *testing.T, test func(*msgpushtest.Server)) []string {
	t.Helper()
	tb := &tb{}
	test(msgpushtest.New(tb))
	assert.Empty(t, tb.errors, "before the end of the test")
	tb.end()
	return tb.errors
}

// list requests a page of a list. The error does not matter.
func list(s *msgpushtest.Server) { _ = listChannels(clientOf(s)) }

func TestUnusedFaultFailsTheTest(t *testing.T) {
	status := msgpushtest.Status(503)
	tests := []struct {
		name string
		test func(*msgpushtest.Server)
		want string // the fault, and how it was used
	}{
		{
			name: "no request",
			test: func(s *msgpushtest.Server) { s.Inject(status) },
			want: "Status(503) for every operation was never used",
		},
		{
			name: "one of two",
			test: func(s *msgpushtest.Server) {
				s.Inject(msgpushtest.Status(500), status)
				list(s)
			},
			want: "Status(503) for every operation was never used",
		},
		{
			name: "for other operations",
			test: func(s *msgpushtest.Server) {
				s.Inject(status.For(msgpushtest.ForwardRuleList, msgpushtest.MailDetail))
				list(s)
			},
			want: "Status(503) for ForwardRuleList and MailDetail was never used",
		},
		{
			name: "Always, injected again after it was used and cleared",
			test: func(s *msgpushtest.Server) {
				always := status.Always()
				s.Inject(always)
				list(s)
				s.ClearFaults()
				s.Inject(always)
			},
			want: "Status(503).Always() for every operation was never used",
		},
		{
			name: "Times, one request too few",
			test: func(s *msgpushtest.Server) {
				s.Inject(status.For(msgpushtest.MPList).Times(3))
				list(s)
			},
			want: "Status(503).Times(3) for MPList was used by 1 of 3 requests",
		},
		{
			name: "server closed before the end",
			test: func(s *msgpushtest.Server) {
				s.Inject(msgpushtest.Fault{})
				s.Close()
			},
			want: "Fault{} for every operation was never used",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, []string{unusedFault(tt.want)}, errorsOf(t, tt.test))
		})
	}
}

// unusedFault returns the error about a fault, from the text of the fault and its uses.
func unusedFault(fault string) string {
	return "msgpushtest: the fault " + fault + ": send a request that uses it, or call ClearFaults"
}

func TestUnusedFaultSaysWhichConditionWasNotMet(t *testing.T) {
	assert.Equal(t, []string{
		unusedFault("HTML.WithStatus(502).If(match).Always() for every operation was never used, " +
			"and match selected no request"),
		unusedFault("Status(503).If(match) for ForwardRuleList was never used, and match was never called"),
	}, errorsOf(t, func(s *msgpushtest.Server) {
		s.Inject(msgpushtest.HTML().WithStatus(502).If(isPage(2)).Always())
		s.Inject(msgpushtest.Status(503).For(msgpushtest.ForwardRuleList).If(isPage(1)))
		list(s)
	}))
}

func TestUnusedBadRecordFailsTheTest(t *testing.T) {
	assert.Equal(t, []string{
		unusedFault("BadRecord(9063).Times(2) for every operation was used by 1 of 2 requests"),
		unusedFault("BadRecord(7) for every operation was never used, since no response had the record"),
	}, errorsOf(t, func(s *msgpushtest.Server) {
		s.SetRecords(msgpushtest.SampleRecords())
		s.Inject(msgpushtest.BadRecord(9063).Times(2))
		_ = calls[msgpushtest.ForwardLogList](clientOf(s))
		s.Inject(msgpushtest.BadRecord(7))
		list(s)
	}))
}

func TestUsedOrClearedFaultDoesNotFailTheTest(t *testing.T) {
	status := msgpushtest.Status(503)
	tests := map[string]func(*msgpushtest.Server){
		"no fault": func(*msgpushtest.Server) {},
		"used": func(s *msgpushtest.Server) {
			s.Inject(status)
			list(s)
		},
		"cleared": func(s *msgpushtest.Server) {
			s.Inject(status, msgpushtest.Reset().Always())
			s.ClearFaults()
		},
		"cleared, with a condition": func(s *msgpushtest.Server) {
			s.Inject(status.If(isPage(1)))
			s.ClearFaults()
		},
		"Always, used once": func(s *msgpushtest.Server) {
			s.Inject(status.Always())
			list(s)
		},
		"Always after Times": func(s *msgpushtest.Server) {
			s.Inject(status.Times(3).Always())
			list(s)
		},
		"Times after Always": func(s *msgpushtest.Server) {
			s.Inject(status.Always().Times(1))
			list(s)
			assert.NoError(t, listChannels(s.Client()))
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { assert.Empty(t, errorsOf(t, test)) })
	}
}

func TestUnusedUpdateBetweenPagesFailsTheTest(t *testing.T) {
	update := func(*msgpushtest.Records) {}
	for name, test := range map[string]func(*msgpushtest.Server){
		"no page":    func(*msgpushtest.Server) {},
		"not a list": func(s *msgpushtest.Server) { _ = calls[msgpushtest.MailDetail](clientOf(s)) },
		"page 1":     list,
		"called and replaced, and the other one not called": func(s *msgpushtest.Server) {
			secondPage(s)
			s.UpdateBetweenPages(update)
		},
		"replaced before it was called": func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			secondPage(s)
		},
		"page rejected, such as one of a wrong key": func(s *msgpushtest.Server) {
			s.Inject(msgpushtest.RejectKey())
			secondPage(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := errorsOf(t, func(s *msgpushtest.Server) {
				s.UpdateBetweenPages(update)
				test(s)
			})
			assert.Equal(t, []string{"msgpushtest: the function of UpdateBetweenPages was never called, since no page " +
				"behind page 1 was requested: request a second page, or call UpdateBetweenPages(nil)"}, errs)
		})
	}
}

func secondPage(s *msgpushtest.Server) { _ = listSecondPage(clientOf(s)) }

func listSecondPage(c *msgpush.Client) error {
	_, err := c.MPList(ctx, msgpush.PageRequest{Current: 2})
	return err
}

func TestPanicOfAFunctionFailsTheTestThoughTheClientRetries(t *testing.T) {
	errs := errorsOf(t, func(s *msgpushtest.Server) {
		s.Inject(msgpushtest.Respond(func(http.ResponseWriter, *http.Request) { panic("a bug of the test") }))
		assert.NoError(t, listChannels(s.Client()))
	})
	require.Len(t, errs, 1)
	assert.Contains(t, errs[0], "a function of the test panicked: a bug of the test\n")
	assert.Contains(t, errs[0], "testing_test.go")
}

func TestUsedOrRemovedUpdateBetweenPagesDoesNotFailTheTest(t *testing.T) {
	update := func(*msgpushtest.Records) {}
	assert.Empty(t, errorsOf(t, func(s *msgpushtest.Server) {
		s.UpdateBetweenPages(update)
		secondPage(s)
	}), "page 2")
	assert.Empty(t, errorsOf(t, func(s *msgpushtest.Server) {
		s.UpdateBetweenPages(update)
		s.UpdateBetweenPages(nil)
	}), "removed")
}

func TestFailOnRejectionReportsRequestsThatTheServerRejects(t *testing.T) {
	send := func(opts ...msgpushtest.Option) []string {
		test := &tb{}
		server := msgpushtest.New(test, opts...)
		client := server.Client()
		_ = listChannels(client)
		_, _ = client.MailDetail(ctx, "no")
		other, err := msgpush.NewClient(server.URL, "other-key", server.Options()...)
		require.NoError(t, err)
		_ = listChannels(other)
		_, _ = msgpush.Call[any](ctx, client, msgpush.Request{Method: http.MethodPost, Path: "/elsewhere"})
		server.Inject(msgpushtest.RejectKey())
		_ = listChannels(client)
		server.ReplaceKey("second-key")
		_ = listChannels(client)
		test.end()
		return test.errors
	}
	assert.Empty(t, send())
	assert.Equal(t, []string{
		`msgpushtest: the server rejected GET /api/open/mail/detail: code 404: there is no record with the mailId "no"`,
		"msgpushtest: the server rejected POST /api/open/mp/list: code 401: the key in the access-key header is " +
			"another one: the server has never accepted it",
		"msgpushtest: the server rejected POST /elsewhere: code 404: there is no operation at /elsewhere",
		"msgpushtest: the server rejected POST /api/open/mp/list: code 401: the key in the access-key header was replaced",
	}, send(msgpushtest.FailOnRejection()))
}

func TestServerInABubbleNeedsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.PanicsWithValue(t, "msgpushtest: New: a server in a synctest bubble needs the option InMemory",
			func() { msgpushtest.New(t) })
		assert.NotPanics(t, func() { msgpushtest.New(t, msgpushtest.InMemory()) })
	})
}

func TestPackagesThatShipImportNoTestPackage(t *testing.T) {
	for _, dir := range []string{".", ".."} {
		p, err := build.ImportDir(dir, 0)
		require.NoError(t, err)
		assert.NotContains(t, p.Imports, "testing") // net/http/httptest, an import, may import it
		assert.NotContains(t, strings.Join(p.Imports, " "), "testify")
		assert.NotContains(t, strings.Join(p.Imports, " "), "internal/tests")
	}
}
