package call

import (
	"math/rand/v2"
	"time"
)

// drawWait returns a random wait before the next attempt, so that callers do not retry at the same time, plus
// the wait that the failure requests. It reports whether the shortest one ends before the deadline. The
// random part takes at most half of the time that the shortest wait leaves.
func (c *Caller) drawWait(s *state, requested time.Duration) (wait time.Duration, ok bool) {
	shortest, longest := c.waitBounds(s.counted())
	room := s.timeLeft() - requested // cannot overflow, since neither is negative
	if room <= shortest {
		return 0, false
	}
	spread := min(longest-shortest, (room-shortest)/2)
	return requested + shortest + rand.N(spread+1), true
}

// waitBounds returns the bounds of the random wait after a number of attempts. The shortest wait begins at
// MinWait and doubles with each attempt, up to half of MaxWait. The longest wait is twice as long, but not
// longer than MaxWait.
func (c *Caller) waitBounds(attempts int) (shortest, longest time.Duration) {
	minWait, maxWait := c.Retry.MinWait, c.Retry.MaxWait
	highest := max(minWait, maxWait/2)
	shortest = highest
	doublings := attempts - 1
	if minWait <= highest>>doublings { // otherwise, shifting minWait left could overflow
		shortest = minWait << doublings
	}
	return shortest, shortest + min(shortest, maxWait-shortest)
}
