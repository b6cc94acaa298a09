package follow

import "time"

// The numbers of the rules. docs/following.md states the limits that follow from them.
const (
	batchSize = 500 // the most records of a batch

	// maxHeld is the number of new records that a poll holds. After an outage of a month, more may be new than
	// fit into memory.
	maxHeld = 200_000
	// maxBurst is how many ids the position keeps between two sweeps, or 4 × Window if that is more. Otherwise, a
	// long catch-up would store ever longer positions.
	maxBurst = 10_000
	// maxOld is how many records in a row, or 2 × Window if that is more, may be unknown and older than a known one.
	// They may be an import of old records, which stands above the known ones. If there are more, the known ones
	// were probably deleted, and a poll does not search them any more: some services refuse the pages behind 10,000
	// records.
	maxOld = 5_000

	// firstWait is the wait before the second attempt, unless PollInterval is shorter.
	firstWait = 10 * time.Second
	// maxBad is how many records in a row must fail for the service to be at fault.
	maxBad = 3
	// refusedAfter is how long pages must have failed, while the newest one succeeds, until a poll takes the page
	// before them for the last one. An outage is seldom so long: the service refuses deep pages.
	refusedAfter = 15 * time.Minute
	maxSearches  = 5 // how often the newest page is searched while the list grows or shrinks
	maxRepeats   = 3 // pages in a row without a record that was not read before
	maxBacks     = 5 // how often a poll goes back from a page

	maxInterval = 365 * 24 * time.Hour // of polls, so that no sum of waits overflows
	maxPageSize = 1_000_000
	maxWindow   = 1_000_000 // the ids of 4 × Window records are in each position
)
