package msgpushtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/msgpush/internal/redact"
)

// A TB is a [*testing.T] or [*testing.B]. In a fuzz test, make the server in the fuzz target, with its t.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// If a test fails, the last maxReported requests are logged, with maxLine characters each.
const maxReported, maxLine = 50, 500

// New starts a [Server] that is closed when the test ends. The test fails for
//
//   - each fault of [Server.Inject] that was used too seldom and not removed by [Server.ClearFaults], such as
//     one whose function of [Fault.If] was never called;
//   - each function of [Server.UpdateBetweenPages] that was never called and not removed by a nil;
//   - each panic of a function that the test passed to the server;
//   - with the option [FailOnRejection], each request that the server rejected.
//
// If the test has failed, the last 50 requests are logged. New panics in a synctest bubble without the option
// [InMemory].
func New(tb TB, opts ...Option) *Server {
	tb.Helper()
	s := newServer(opts)
	deadline, inBubble := deadlineOf(tb)
	if inBubble && !s.inMemory {
		s.Close()
		panic("msgpushtest: New: a server in a synctest bubble needs the option InMemory")
	}
	s.deadline = deadline
	tb.Cleanup(func() {
		tb.Helper()
		s.Close()
		s.report(tb)
	})
	return s
}

// deadlineOf returns the deadline of a test, or zero if it has none. inBubble reports whether the test runs
// in a synctest bubble. The method Deadline of a *testing.T panics there and nowhere else, and there is no
// function that reports whether code runs in a bubble.
func deadlineOf(tb TB) (deadline time.Time, inBubble bool) {
	test, ok := tb.(interface{ Deadline() (time.Time, bool) })
	if !ok { // such as a *testing.B
		return time.Time{}, false
	}
	defer func() { inBubble = recover() != nil }()
	deadline, _ = test.Deadline()
	return deadline, false
}

// addMisuse stores an error text for report.
func (s *Server) addMisuse(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.misuses = append(s.misuses, text)
}

// report fails a test that used s wrongly, and logs the last requests if the test has failed.
func (s *Server) report(tb TB) {
	tb.Helper()
	s.mu.Lock()
	misuses := slices.Concat(s.misuses, s.unusedFaults(), s.unusedUpdate())
	requests := s.requests
	s.mu.Unlock()
	for _, text := range misuses {
		tb.Errorf("msgpushtest: %s", text)
	}
	if !tb.Failed() {
		return
	}
	var lines strings.Builder
	for i := max(0, len(requests)-maxReported); i < len(requests); i++ {
		fmt.Fprintf(&lines, "\n%d: %s", i+1, redact.Shorten(requests[i].String(), maxLine))
	}
	tb.Logf("msgpushtest: requests that arrived: %d%s", len(requests), lines.String())
}
