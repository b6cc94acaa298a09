package msgpushtest

// A TB is what [New] needs of a *testing.T, *testing.B or *testing.F.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
}

// maxReported is how many requests are reported of a test that failed.
const maxReported = 50

// New starts a server for a test, which closes it when it ends. If the test has
// failed by then, the last requests that arrived are logged.
func New(tb TB) *Server {
	tb.Helper()
	s := NewServer()
	tb.Cleanup(func() {
		defer s.Close()
		if !tb.Failed() {
			return
		}
		requests := s.Requests()
		tb.Logf("%d requests arrived at the stand-in", len(requests))
		for i := max(0, len(requests)-maxReported); i < len(requests); i++ {
			tb.Logf("%d: %v", i+1, requests[i])
		}
	})
	return s
}
