package follow

import (
	"context"
	"time"

	"example.com/msgpush/internal/errs"
)

// This file chooses between a poll and a page of a reading. The rules are:
//
//   - Polls. A poll is due PollInterval after the latest one, or after a longer wait if that failed.
//   - Readings. One page of a reading follows each poll that succeeds. If the reading hurries, further
//     pages follow until the next poll is due.
//   - Without Created and Known, polls wait for the end of the first reading: until then, each record is
//     undelivered. They do not wait while a page of it fails.

// next returns the next step, and when it is due. A time in the past means now.
func (f *Follower[T]) next() (step func(context.Context), at time.Time) {
	readAt, pollAt := f.reading.next(), f.polls.due
	if !f.mayPoll() {
		return f.read, readAt
	}
	pollIsDue := !time.Now().Before(pollAt)
	mayRead := f.reading.pollHasEnded || f.hurries() && !pollIsDue
	if mayRead && readAt.Before(pollAt) {
		return f.read, readAt
	}
	return f.poll, pollAt
}

// mayPoll reports whether polls may begin.
func (f *Follower[T]) mayPoll() bool {
	return f.list.Created != nil || f.isPastFirstReading() || f.health.hasFailed(readFails)
}

// isPastFirstReading reports whether the first reading has ended, or the program has restarted.
func (f *Follower[T]) isPastFirstReading() bool { return f.reading.hasEnded || f.history.isRestart }

// note takes the result of a request, a call of store, or a reading. It updates the status, reports
// an error, and returns when to try again.
func (f *Follower[T]) note(ctx context.Context, c cause, err error) (at time.Time) {
	now := time.Now()
	if errs.OfContext(ctx) != nil { // err may be the error of the context
		return now
	}
	f.health.update(c, err, now)
	oldest := f.health.oldest()
	f.updateStatus(func(s *Status) {
		s.Since = f.history.since
		s.Complete = f.reading.hasEnded
		s.Err, s.FailingSince = oldest.err, oldest.since
	})
	if err == nil {
		return now
	}
	f.report(ctx, err)
	return now.Add(f.health.wait(c, err, f.options))
}
