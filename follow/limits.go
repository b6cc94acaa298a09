package follow

import "time"

// The numbers of the rules. docs/following.md states the limits that follow from them.
const (
	batchSize = 500 // the most records of a batch

	// maxHeld is the number of new records that a poll holds. After an outage of a month, more may be new
	// than fit into memory.
	maxHeld = 200_000
	// maxBurst is how many ids the position keeps between two sweeps, or 4 × Window if that is more.
	// Otherwise, a long catch-up would store ever longer positions.
	maxBurst = 10_000

	// firstWait is the wait before the second attempt, unless PollInterval is shorter. Then the waits double.
	firstWait = 10 * time.Second
	maxWait   = time.Minute // before another attempt
	// maxRetryAfter bounds a Retry-After, which may be wrong.
	maxRetryAfter    = time.Hour
	requiredAttempts = 5           // for a page on which new records depend
	optionalAttempts = 2           // for another page but the newest one
	attemptsPerParts = 20          // the second attempt for a page, and each twentieth one, is made in parts
	firstSweepWait   = time.Minute // before a sweep after a page that failed

	// minPairs is the number of pairs that decide on an order: a few may be in order by chance.
	minPairs      = 10
	maxFirstScans = 4 // of the list, at the first start
	maxSearches   = 5 // how often the newest page is searched while the list grows or shrinks
	maxRepeats    = 3 // pages in a row without a record that was not read before
	maxBacks      = 5 // how often a poll goes back from a page

	maxInterval = 365 * 24 * time.Hour // of polls, so that no sum of waits overflows
	maxPageSize = 1_000_000
	maxWindow   = 1_000_000 // the ids of 4 × Window records are in each position
)
