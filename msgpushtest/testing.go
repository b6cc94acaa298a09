package msgpushtest

// A TB is the part of [testing.TB] that [New] uses. It is implemented by *testing.T,
// *testing.B and *testing.F.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
}

// maxReported is the maximum number of requests that are logged when a test fails.
const maxReported = 50

// New starts a [Server] that is closed when the test ends. If the test has failed,
// the last requests are logged.
func New(tb TB, opts ...Option) *Server {
	tb.Helper()
	s := NewServer(opts...)
	tb.Cleanup(func() {
		defer s.Close()
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
