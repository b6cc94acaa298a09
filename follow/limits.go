package follow

import "time"

// The numbers of the rules. docs/following.md states the limits that follow from them.
const (
	batchSize = 500 // the most records of a batch

	// maxHeld is the number of new records that a poll holds. After an outage of a month, more may be new than
	// fit into memory.
	maxHeld = 200_000
	// maxBurst is how many of the records that a poll delivers are known after it, or 4 × Window if that is
	// more. If all of them are deleted before the next sweep, no known record is left.
	maxBurst = 10_000
	// maxOld is how many records in a row may be unknown although they were created before the newest known one.
	// After that, a poll takes the known ones for deleted, and reads no further. Some services refuse the pages
	// behind 10,000 records.
	maxOld = 5_000
	// maxUnknown is the number of unknown records, or 2 × Window if that is more, after which another known one
	// below them is not searched for: an import of old records has seldom more.
	maxUnknown = 5_000
	// maxUnseen is the number of sweeps after which an id is forgotten that none of them has seen.
	maxUnseen = 3

	// firstWait is the wait before the second attempt, unless PollInterval is shorter.
	firstWait = 10 * time.Second
	// maxAttempts is how often a poll requests a page that it needs. Page 1 always exists, and is requested
	// until that succeeds.
	maxAttempts = 5
	// skipAfter is how long pages must have failed before such a page is skipped. An outage is seldom longer,
	// and page 1 succeeds meanwhile: a record may be too long, or the service refuses deep pages.
	skipAfter   = 15 * time.Minute
	maxSkips    = 2 // pages in a row that are skipped
	maxSearches = 5 // how often the newest page is searched while the list grows or shrinks
	maxRepeats  = 3 // pages in a row with the same records
	maxBacks    = 5 // how often a poll goes back from a page

	maxInterval = 365 * 24 * time.Hour // of polls, so that no sum of waits overflows
	maxWindow   = 1_000_000            // the ids of 2 × Window records are in each position
)
