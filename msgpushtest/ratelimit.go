package msgpushtest

import "time"

// A rateLimit counts the requests in a fixed window.
type rateLimit struct {
	max    int // 0 is unlimited
	window time.Duration
	start  time.Time // of the current window
	count  int       // requests allowed in the current window
}

// SetRateLimit limits the requests to n in each window of time. A window begins with the first
// request after the last window. Further requests get HTTP status 429, the code [CodeRateLimit] and
// a Retry-After header, and use up no fault. If n is 0, the default, there is no limit.
func (s *Server) SetRateLimit(n int, window time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = rateLimit{max: n, window: window}
}

// allow counts a request and reports whether it is within the rate limit. If it is not, allow
// returns the time until the window ends.
func (s *Server) allow() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, now := &s.limit, time.Now()
	if now.Sub(l.start) >= l.window {
		l.start, l.count = now, 0
	}
	if l.max > 0 && l.count >= l.max {
		return l.start.Add(l.window).Sub(now), false
	}
	l.count++
	return 0, true
}
