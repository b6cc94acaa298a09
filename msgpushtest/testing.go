package msgpushtest

import "slices"

// A TB is a [*testing.T] or [*testing.B]. In a fuzz test, make the server in the fuzz target, with
// its t.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// maxReported is the maximum number of requests that are logged when a test fails.
const maxReported = 50

// New starts a [Server] that is closed when the test ends. The test fails
//
//   - for each fault of [Server.Inject] that was used too seldom and not removed by
//     [Server.ClearFaults];
//   - if a function panicked that the test passed to the server; a panic with
//     [http.ErrAbortHandler] counts only in [Server.Update];
//   - if something has waited for 5 seconds: [Server.Close], [Server.WaitForRequest] without a
//     deadline, or the server for a function (one of [Respond] is only logged). In a synctest
//     bubble, the wait goes on: the runtime reports a deadlock of channels, but not of locks;
//   - for each request that the server rejects, with the option [FailOnRejection].
//
// If the test has failed, the last 50 requests are logged.
func New(tb TB, opts ...Option) *Server {
	tb.Helper()
	if isOutsideBubble(tb) {
		panic("msgpushtest: New: the test is the one outside the synctest bubble: " +
			"give New the t of the function of synctest.Test")
	}
	s := newServer(tb, opts...)
	tb.Cleanup(func() {
		tb.Helper()
		s.Close() // no request is accepted afterwards
		for _, text := range s.endTest() {
			tb.Errorf("msgpushtest: %s", text)
		}
		if !tb.Failed() {
			return
		}
		requests := s.Requests()
		tb.Logf("msgpushtest: %d requests arrived", len(requests))
		for i := max(0, len(requests)-maxReported); i < len(requests); i++ {
			tb.Logf("%d: %v", i+1, requests[i])
		}
	})
	return s
}

// endTest returns an error text for each panic of a function of the test, and for each fault used
// too seldom. Afterwards, only New may call tb.
func (s *Server) endTest() []string {
	s.lock()
	defer s.mu.Unlock()
	s.test.ended = true
	return slices.Concat(s.test.panics, s.unusedFaults())
}
