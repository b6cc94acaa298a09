package follow

import "time"

// SetRandom replaces the source of the random waits, so that a history can be repeated.
func (f *Follower[T]) SetRandom(random func(time.Duration) time.Duration) { f.steps.random = random }

// SetMaxHeld replaces the number of new records that a poll holds.
func (f *Follower[T]) SetMaxHeld(n int) { f.maxHeld = n }
