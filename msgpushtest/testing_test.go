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
	for _, failed := range []bool{false, true} {
		test := &tb{failed: failed}
		server := msgpushtest.New(test)
		for range 70 {
			require.NoError(t, listChannels(server.Client()))
		}
		test.end()
		assert.Error(t, listChannels(clientOf(server)), "the server is closed")
		if !failed {
			assert.Empty(t, test.logs)
			continue
		}
		require.Len(t, test.logs, 51, "the last 50")
		assert.Equal(t, "msgpushtest: requests that arrived: 70", test.logs[0])
		assert.Contains(t, test.logs[50], "70: ")
		assert.Contains(t, test.logs[50], "POST /api/open/mp/list")
		assert.NotContains(t, strings.Join(test.logs, ""), server.AccessKey())
	}
}

func TestUnusedFaultFailsTheTest(t *testing.T) {
	unused := func(faults ...string) []string {
		for i, f := range faults {
			faults[i] = "msgpushtest: the fault " + f + ": send a request that uses it, or call ClearFaults"
		}
		return faults
	}
	never := func(fault string) []string { return unused(fault + " was never used") }
	call := func(s *msgpushtest.Server) { _ = listChannels(clientOf(s)) }
	status := msgpushtest.Status(503)
	tests := []struct {
		name string
		test func(*msgpushtest.Server)
		want []string
	}{
		{"no fault", func(*msgpushtest.Server) {}, nil},
		{"no request", func(s *msgpushtest.Server) { s.Inject(status) }, never("Status(503) for every operation")},
		{"used", func(s *msgpushtest.Server) {
			s.Inject(status)
			call(s)
		}, nil},
		{"cleared", func(s *msgpushtest.Server) {
			s.Inject(status, msgpushtest.Reset().Always())
			s.ClearFaults()
		}, nil},
		{"one of two", func(s *msgpushtest.Server) {
			s.Inject(msgpushtest.Status(500), status)
			call(s)
		}, never("Status(503) for every operation")},
		{"for other operations", func(s *msgpushtest.Server) {
			s.Inject(status.For(msgpushtest.ForwardRuleList, msgpushtest.MailDetail))
			call(s)
		}, never("Status(503) for ForwardRuleList and MailDetail")},
		{"for other requests", func(s *msgpushtest.Server) {
			s.Inject(msgpushtest.HTML().WithStatus(502).If(isPage(2)).Always())
			call(s)
		}, unused("HTML.WithStatus(502).If(match).Always() for every operation was never used, " +
			"and match selected no request")},
		{"condition that is never called", func(s *msgpushtest.Server) {
			s.Inject(status.For(msgpushtest.ForwardRuleList).If(isPage(1)))
			call(s)
		}, unused("Status(503).If(match) for ForwardRuleList was never used, and match was never called")},
		{"condition of a fault that is cleared", func(s *msgpushtest.Server) {
			s.Inject(status.If(isPage(1)))
			s.ClearFaults()
		}, nil},
		{"record that no response had", func(s *msgpushtest.Server) {
			s.SetRecords(msgpushtest.SampleRecords())
			s.Inject(msgpushtest.BadRecord(9063).Times(2))
			_ = calls[msgpushtest.ForwardLogList](clientOf(s))
			s.Inject(msgpushtest.BadRecord(7))
			call(s)
		}, unused("BadRecord(9063).Times(2) for every operation was used by 1 of 2 requests",
			"BadRecord(7) for every operation was never used, since no response had the record")},
		{"Always, used once", func(s *msgpushtest.Server) {
			s.Inject(status.Always())
			call(s)
		}, nil},
		{"Always, injected again after it was used and cleared", func(s *msgpushtest.Server) {
			always := status.Always()
			s.Inject(always)
			call(s)
			s.ClearFaults()
			s.Inject(always)
		}, never("Status(503).Always() for every operation")},
		{"Times, one request too few", func(s *msgpushtest.Server) {
			s.Inject(status.For(msgpushtest.MPList).Times(3))
			call(s)
		}, unused("Status(503).Times(3) for MPList was used by 1 of 3 requests")},
		{"Always after Times", func(s *msgpushtest.Server) {
			s.Inject(status.Times(3).Always())
			call(s)
		}, nil},
		{"Times after Always", func(s *msgpushtest.Server) {
			s.Inject(status.Always().Times(1))
			call(s)
			assert.NoError(t, listChannels(s.Client()))
		}, nil},
		{"server closed before the end", func(s *msgpushtest.Server) {
			s.Inject(msgpushtest.Fault{})
			s.Close()
		}, never("Fault{} for every operation")},
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

func TestUnusedUpdateBetweenPagesFailsTheTest(t *testing.T) {
	unused := func(pages string) string {
		return "msgpushtest: the function of UpdateBetweenPages was never called, since " + pages +
			" was requested: request a second page, or call UpdateBetweenPages(nil)"
	}
	update := func(*msgpushtest.Records) {}
	list := func(s *msgpushtest.Server) { _ = listChannels(clientOf(s)) }
	tests := []struct {
		name string
		test func(*msgpushtest.Server)
		want []string
	}{
		{"no page", func(s *msgpushtest.Server) { s.UpdateBetweenPages(update) }, []string{unused("no page")}},
		{"not a list", func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			_ = calls[msgpushtest.MailDetail](clientOf(s))
		}, []string{unused("no page")}},
		{"one page", func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			list(s)
		}, []string{unused("only one page")}},
		{"two pages", func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			list(s)
			list(s)
		}, nil},
		{"removed", func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			s.UpdateBetweenPages(nil)
		}, nil},
		{"called and replaced, and the other one not called", func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			list(s)
			list(s)
			s.UpdateBetweenPages(update)
			list(s)
		}, []string{unused("only one page")}},
		{"replaced before it was called", func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			s.UpdateBetweenPages(update)
			list(s)
			list(s)
		}, []string{unused("no page")}},
		{"page rejected, such as one of a wrong key", func(s *msgpushtest.Server) {
			s.UpdateBetweenPages(update)
			s.Inject(msgpushtest.RejectKey())
			list(s)
			list(s)
		}, []string{unused("only one page")}},
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
