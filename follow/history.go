package follow

import (
	"fmt"
	"time"

	"example.com/msgpush"
)

// This file separates new records from history by their creation times. The rules are:
//
//   - Since. At a first start, it is the newest time at both ends of the list. If there is none, or the
//     end of the list is not certain, Since is not earlier than 12 h before the start in UTC, since no
//     service has a clock that is further behind.
//   - New. A record is new if it was created after Since, or in the second of Since and the first
//     reading has ended without it.
//   - Invalid time. A time does not count if it is missing, zero, in another format, or more than
//     24 h ahead of UTC, unless Since is ahead, too. Its record is history until the first reading
//     has ended or the program has restarted, and new afterwards.
//   - Wrong clock. If all times at an end of the list are ahead, at least three, the local clock is
//     behind. Then they count.

// noHistory is a Since with which every record with a valid time is new.
const noHistory msgpush.DateTime = "0001-01-01 00:00:00"

const (
	// maxAhead is how far a creation time may be ahead of the clock. The time zone of the service,
	// which is unknown, is at most 14 hours from UTC.
	maxAhead = 24 * time.Hour
	// maxBehind is how far the westernmost time zone is behind UTC.
	maxBehind = 12 * time.Hour
	// minAhead is how many times ahead show that the local clock is behind.
	minAhead = 3
)

type history struct {
	since     msgpush.DateTime // empty before a first start, and if the list has no function Created
	isRestart bool             // an earlier follower has delivered a batch
	named     [timeKinds]bool  // kinds of invalid times for which a problem has named a record
}

func newHistory(since msgpush.DateTime, hasKnown, hasTimes bool) history {
	if !hasTimes {
		return history{isRestart: hasKnown}
	}
	if since == "" && hasKnown {
		since = noHistory
	}
	return history{since: since, isRestart: since != ""}
}

// firstSince returns the Since of a first start. first and last are the times at both ends.
func firstSince(first, last []msgpush.DateTime, endIsCertain bool, start time.Time) msgpush.DateTime {
	limit := newestTime(time.Now())
	a, b := newestOf(first, limit), newestOf(last, limit)
	since := max(a.valid, b.valid)
	if a.showsClockBehind() || b.showsClockBehind() {
		since = max(since, a.ahead, b.ahead)
	}
	isUncertain := since == "" || !endIsCertain
	if isUncertain {
		since = max(since, dateTime(start.Add(-maxBehind)))
	}
	return since
}

// newest holds the newest time that counts, and the newest one ahead.
type newest struct {
	valid, ahead msgpush.DateTime
	nAhead       int // how many times are ahead
}

func newestOf(times []msgpush.DateTime, limit msgpush.DateTime) (n newest) {
	for _, created := range times {
		switch {
		case !isValid(created):
		case created > limit:
			n.ahead = max(n.ahead, created)
			n.nAhead++
		default:
			n.valid = max(n.valid, created)
		}
	}
	return n
}

func (n newest) showsClockBehind() bool { return n.valid == "" && n.nAhead >= minAhead }

// newestEnd returns the end of the list whose outermost record is the newest, if only one is. times
// are the times of both ends.
func newestEnd(times []msgpush.DateTime, since msgpush.DateTime) end {
	if len(times) == 0 {
		return unknownEnd
	}
	firstIsNewest, lastIsNewest := times[0] == since, times[len(times)-1] == since
	switch {
	case firstIsNewest && !lastIsNewest:
		return startEnd
	case lastIsNewest && !firstIsNewest:
		return tailEnd
	}
	return unknownEnd
}

func dateTime(t time.Time) msgpush.DateTime { return msgpush.DateTime(t.UTC().Format(time.DateTime)) }

// newestTime returns the newest time that is not ahead.
func newestTime(now time.Time) msgpush.DateTime { return dateTime(now.Add(maxAhead)) }

// isValid reports whether created is a time after the zero time. Some services send the zero time
// for a missing one.
func isValid(created msgpush.DateTime) bool {
	_, err := created.Time(time.UTC)
	return err == nil && created > noHistory
}

// A timeKind says whether a creation time counts, by the rule for invalid times.
type timeKind int

const (
	validTime timeKind = iota
	invalidTime
	timeAhead
	timeKinds
)

// classify reports whether an undelivered record is new, and the kind of its creation time. limit is
// the newestTime. isComplete reports whether this follower has read the whole list.
func (h *history) classify(created, limit msgpush.DateTime, isComplete bool) (isNew bool, kind timeKind) {
	isPast := isComplete || h.isRestart
	switch {
	case !isValid(created):
		return isPast, invalidTime
	case created > limit && h.since <= limit:
		return isPast, timeAhead
	}
	isInSecondOfSince := created == h.since
	return created > h.since || isInSecondOfSince && isComplete, validTime
}

// problem returns an error for the first record of each kind of time that does not count, and nil
// for the others.
func (h *history) problem(kind timeKind, id int64, created msgpush.DateTime, isNew bool) error {
	if h.named[kind] {
		return nil
	}
	h.named[kind] = true
	problem := "has no valid creation time"
	if kind == timeAhead {
		problem = fmt.Sprintf("was created at %s, more than 24 h ahead of UTC", created)
	}
	counts := "history until the list has been read once, and as new afterwards"
	if isNew {
		counts = "new"
	}
	return fmt.Errorf("msgpush: following a list: record %d %s: such records count as %s", id, problem, counts)
}
