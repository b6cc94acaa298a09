package follow

// SetRandom replaces the source of the random waits, so that a history can be repeated.
func (f *Follower[T]) SetRandom(random func(n int64) int64) { f.steps.random = random }

// SetMaxHeld replaces the number of new records that a poll holds.
func (f *Follower[T]) SetMaxHeld(n int) { f.maxHeld = n }
