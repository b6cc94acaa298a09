// Package follow delivers the records of a list, and then each new record, to a program that stores
// them. This loop is all that the program needs:
//
//	f := follow.New(client.ForwardLogs(msgpush.ForwardLogParams{}), follow.Options{Known: ids, Since: since})
//	for batch, err := range f.Batches(ctx) {
//		if err != nil {
//			log.Print(err) // unless the iteration has ended, the loop goes on
//			continue
//		}
//		for err := store(batch); err != nil; err = store(batch) {
//			log.Print(err)
//			if ctx.Err() != nil {
//				return // a later loop over Batches begins with this batch
//			}
//			time.Sleep(time.Second) // until the database is available again
//		}
//	}
//
// In one transaction, store stores the ids of batch.New and batch.History, a row of an outbox for
// each alert of batch.New, and batch.Since; it skips ids that it has. At the next start, ids and
// since are the stored values; at the very first start, they are empty.
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/paging"
)

// Options configure a [Follower]. The zero value is a first start with the defaults.
type Options struct {
	// PageSize is the number of records that are requested per page. 0 means that of the list.
	PageSize int
	// PollInterval is the wait after a poll, which looks for new records at an end of the list. It
	// is up to 10 % shorter or longer, at random. 0 means 10 s.
	PollInterval time.Duration
	// ReadInterval is how often the whole list is read: each reading delivers the records that no
	// poll has found. 0 means 1 h.
	ReadInterval time.Duration
	// Known holds the ids of the records that were delivered before, in any order.
	Known []int64
	// Since is the stored Since of the batches. If it is empty, but Known is not, there is no
	// history: each unknown record is new.
	Since msgpush.DateTime
}

// A Batch holds the records to store in one transaction. No record is in two batches. A batch is
// yielded again only if it was not delivered.
type Batch[T any] struct {
	// New holds the records that were created after Since, in unspecified order: send alerts for
	// them. If the list has no function Created, all its records are new.
	New []T
	// History holds the records that were created at Since or before: store their ids.
	// docs/lists.md states where records without a valid creation time go.
	History []T
	// Since separates New from History. At the first start, it is the newest valid creation time at
	// the two ends of the list, or 0001-01-01 00:00:00 if there is none. It is the same in all
	// batches. Store it for [Options.Since]. It is empty if the list has no function Created.
	Since msgpush.DateTime
}

func (b Batch[T]) clone() Batch[T] {
	return Batch[T]{
		New:     slices.Clone(b.New),
		History: slices.Clone(b.History),
		Since:   b.Since,
	}
}

// A Status is the state of a [Follower]. A zero time stands for never.
type Status struct {
	// Since is the Since of the batches. At the very first start, it is empty until the first
	// batch.
	Since msgpush.DateTime
	// Complete reports whether the first reading of this follower has ended. It may have missed
	// records if the list changed meanwhile. After a restart, that reading is due within
	// ReadInterval.
	Complete bool
	// Read is the number of records that the reading in progress, or the latest one, has found.
	// Total is the number of records in the list.
	Read, Total int64
	// LastPoll is when a poll last succeeded. LastResponse is when Fetch last returned a page.
	LastPoll, LastResponse time.Time
	// NextRequest is when the next request is due, at first the time of New. It is in the past
	// during a request, and when the body of the loop runs past it.
	NextRequest time.Time
	// Err is nil unless an argument is invalid, the first start, the latest poll or the latest page
	// of a reading failed, or the latest complete reading lacked records. FailingSince is when
	// the first failure of this kind in a row was noticed, after the retries of its call.
	Err          error
	FailingSince time.Time
}

// A Follower delivers the records of a list, and then each new record.
type Follower[T any] struct {
	list    msgpush.List[T]
	options Options // without Known
	invalid error   // why the arguments of New are invalid, or nil

	mu      sync.Mutex // guards running and status
	running bool       // a loop over Batches
	status  Status

	// Only the goroutine of the loop uses the fields below.
	seen     paging.IDSet // ids of Known and of the records of all batches
	batch    *Batch[T]    // found and not delivered, or nil
	problems []error      // to be yielded
	history  history
	polls    polls
	reading  reading[T]
	health   health
	lastStep stepKind // the kind of the latest step
	reported reported
}

// New returns a follower of a list, such as that of [msgpush.Client.ForwardLogs]. It sends no
// request. Invalid arguments are an error of [Follower.Batches]: a list without Fetch or ID, a
// negative number, and a non-empty Since that is not a date and time. Without Created, every record
// is New and, if Known is empty too, polls begin after the first reading.
//
// A follower remembers the ids of all records, also of deleted ones. That takes less than 1 byte a
// record if the ids are consecutive, up to 48 bytes if they are random, and twice as much while the
// whole list is read.
func New[T any](list msgpush.List[T], o Options) *Follower[T] {
	f := &Follower[T]{list: list, options: o, invalid: check(list, o)}
	f.seen = paging.IDSet{}
	if f.invalid != nil {
		f.status.Err = f.invalid
		f.status.FailingSince = time.Now()
		return f
	}
	f.options.PageSize = cmp.Or(o.PageSize, list.PageSize, msgpush.DefaultPageSize)
	f.options.PollInterval = min(cmp.Or(o.PollInterval, 10*time.Second), maxInterval)
	f.options.ReadInterval = min(cmp.Or(o.ReadInterval, time.Hour), maxInterval)
	f.options.Known = nil
	f.reported.lastPage = 1
	for _, id := range o.Known {
		if f.seen.Add(id) {
			f.polls.total++
		}
	}
	hasKnown := f.polls.total > 0
	if hasKnown {
		f.reading.due = time.Now().Add(rand.N(f.options.ReadInterval))
	}
	if list.Created != nil {
		f.history.since = o.Since
		if hasKnown && o.Since == "" {
			f.history.since = noHistory
		}
	}
	f.history.isRestart = hasKnown || f.history.since != ""
	f.status.Since = f.history.since
	f.status.NextRequest = time.Now()
	return f
}

// maxInterval is a century, so that no sum of times overflows.
const maxInterval = 100 * 365 * 24 * time.Hour

func check[T any](list msgpush.List[T], o Options) error {
	switch {
	case list.Fetch == nil || list.ID == nil:
		return errors.New("msgpush: following a list: the function Fetch or ID of the list is nil")
	case o.PageSize < 0:
		return fmt.Errorf("msgpush: following a list: PageSize, %d, is negative", o.PageSize)
	case list.PageSize < 0:
		return fmt.Errorf("msgpush: following a list: PageSize of the list, %d, is negative", list.PageSize)
	case o.PollInterval < 0:
		return fmt.Errorf("msgpush: following a list: PollInterval, %v, is negative", o.PollInterval)
	case o.ReadInterval < 0:
		return fmt.Errorf("msgpush: following a list: ReadInterval, %v, is negative", o.ReadInterval)
	case o.Since == "":
		return nil
	}
	if _, err := o.Since.Time(time.UTC); err != nil {
		return fmt.Errorf("msgpush: following a list: Since: %w", err)
	}
	return nil
}

// Batches returns an iterator over the batches. It requests pages until the context ends or the
// loop is left, in the goroutine of the loop, one after another. Only one loop may run at a time.
//
// A batch counts as delivered as soon as the loop goes on to the next element. If the loop is left
// during a batch, by break, return or a panic, the next loop over Batches yields the batch again
// and goes on from there. So store a batch before the loop goes on.
//
// Usually, a batch has the records of one page; after an outage, of up to 100 pages. If the list
// has Created and is empty at the very first start, the first batch has no record: store its Since.
//
// # Errors
//
// An error is yielded with a zero Batch. If the loop goes on, so does the follower: a failed call
// of Fetch is made again later. The wait begins with about twice PollInterval, and doubles with
// each further failure in a row. It is at most a minute, or PollInterval if that is longer.
// RetryAfter of an [msgpush.APIError] with a retryable status makes it longer, up to ReadInterval.
// A rejected access key does not end the iteration either.
//
// These errors cause no wait: the first record without a valid creation time, the first one that
// was created more than 24 h ahead of UTC by the local clock, and, at the end of a reading, an
// [msgpush.ErrInconsistentList] that says how many records are missing.
//
// The iteration ends with an error if the arguments are invalid, if another loop is running, or if
// the context ends. In the last case, the error wraps the error of the context and its cause.
func (f *Follower[T]) Batches(ctx context.Context) iter.Seq2[Batch[T], error] {
	return func(yield func(Batch[T], error) bool) {
		var none Batch[T]
		if err := f.begin(ctx); err != nil {
			yield(none, err)
			return
		}
		defer f.finish()
		for errs.OfContext(ctx) == nil {
			switch {
			case f.batch != nil:
				if !yield(f.batch.clone(), nil) { // the loop may change its copy
					return
				}
				f.batch = nil
			case len(f.problems) > 0:
				err := f.problems[0]
				f.problems = f.problems[1:]
				if !yield(none, err) {
					return
				}
			default:
				if f.pause(ctx) {
					f.makeStep(ctx)
				}
			}
		}
		yield(none, errs.EndOfContext(ctx, "msgpush: following a list: ", nil))
	}
}

// Status returns the state of the follower. It may be called at any time, from any goroutine.
func (f *Follower[T]) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *Follower[T]) updateStatus(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
}

func (f *Follower[T]) begin(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.seen == nil:
		return errors.New("msgpush: following a list: the Follower was not made by New")
	case f.invalid != nil:
		return f.invalid
	case ctx == nil:
		return errors.New("msgpush: following a list: the context is nil")
	case f.running:
		return errors.New("msgpush: following a list: another loop over Batches is running")
	}
	f.running = true
	return nil
}

func (f *Follower[T]) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = false
}

// pause waits until the next request is due. It reports false if the context ended before.
func (f *Follower[T]) pause(ctx context.Context) bool {
	wait := max(0, time.Until(f.Status().NextRequest))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return errs.OfContext(ctx) == nil
}
