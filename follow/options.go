// Package follow delivers the records of a list, and then each new record, to a program that stores
// them:
//
//	f, err := follow.New(client.ForwardLogPager(params), follow.Options{Known: ids, Since: since})
//	if err != nil {
//		return err
//	}
//	return f.Run(ctx, store)
//
// In one transaction, store stores the ids of batch.New and batch.History, a row of an outbox for
// each alert of batch.New, and batch.Since. It skips ids that it has. At the next start, ids and
// since are the stored values; at the very first start, they are empty. Both belong to one list and
// its filter.
package follow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/paging"
)

// Options configure a [Follower]. The zero value is a first start with the defaults.
type Options struct {
	// PollInterval is the wait after a poll, which looks for new records at an end of the list. It
	// is up to 10 % shorter or longer, at random. 0 means 10 s.
	PollInterval time.Duration
	// ReadInterval is the shortest time between the starts of two readings. A reading requests all
	// pages of the list, and delivers the records that no poll has found. Usually, it requests one
	// page after each poll. 0 means 1 h.
	ReadInterval time.Duration
	// Known holds the ids of the records that were stored before, in any order. They belong to this
	// list and its filter.
	Known []int64
	// Since is the stored Since of the batches of this list. If it is empty, but Known is not, there
	// is no history: each unknown record is new.
	Since msgpush.DateTime
	// OnError is called with each error after which Run goes on, in the goroutine of Run. Nil means
	// that [slog.Default] logs the error at level Warn.
	OnError func(error)
}

// A Batch holds the records to store in one transaction. No record is in two batches that were
// stored.
type Batch[T any] struct {
	// New holds the records that were created after Since, in unspecified order: send alerts for
	// them. If the list has no function Created, all its records are new.
	New []T
	// History holds the records that were created at Since or before: store their ids. A record that
	// was created in the same second as Since is new if it is found after the first reading of the
	// Follower.
	// docs/lists.md states where records without a valid creation time go.
	History []T
	// Since separates New from History, and is the same in all batches: store it for
	// [Options.Since]. At the first start, it is the newest valid creation time at the two ends of
	// the list. If the list is empty, or its end is not certain, Since is not earlier than 12 hours
	// before the start, in UTC. It is empty if the list has no function Created.
	Since msgpush.DateTime
}

func (b Batch[T]) clone() Batch[T] {
	return Batch[T]{
		New:     slices.Clone(b.New),
		History: slices.Clone(b.History),
		Since:   b.Since,
	}
}

// New returns a follower of a list, such as that of [msgpush.Client.ForwardLogPager]. It uses the
// PageSize of the list, ignores its Prefetch, and sends no request. It returns an error for a list
// without Fetch or ID, a negative number, and a non-empty Since that is not a date and time. Without
// Created, every record is New and, if Known is empty too, polls begin after the first reading.
//
// A follower remembers the ids of all records, also of deleted ones. That takes less than 1 byte a
// record if the ids are consecutive, up to 48 bytes if they are random, and twice as much while the
// whole list is read.
func New[T any](list msgpush.Pager[T], o Options) (*Follower[T], error) {
	if err := check(list, o); err != nil {
		return nil, fmt.Errorf("msgpush: following a list: %w", err)
	}
	list.PageSize = cmp.Or(list.PageSize, msgpush.DefaultPageSize)
	f := &Follower[T]{
		list:      list,
		options:   o,
		delivered: paging.IDSet{},
		numbers:   numbers{size: int64(list.PageSize)},
	}
	f.options.PollInterval = min(cmp.Or(o.PollInterval, 10*time.Second), maxInterval)
	f.options.ReadInterval = min(cmp.Or(o.ReadInterval, time.Hour), maxInterval)
	f.options.Known = nil
	for _, id := range o.Known {
		if f.delivered.Add(id) {
			f.polls.accounted++
		}
	}
	f.history = newHistory(o.Since, len(o.Known) > 0, list.Created != nil)
	f.shared.status = Status{Since: f.history.since, NextStep: time.Now()}
	return f, nil
}

// maxInterval is a century, so that no sum of times overflows.
const maxInterval = 100 * 365 * 24 * time.Hour

func check[T any](list msgpush.Pager[T], o Options) error {
	switch {
	case list.Fetch == nil || list.ID == nil:
		return errors.New("the function Fetch or ID of the list is nil")
	case list.PageSize < 0:
		return fmt.Errorf("PageSize of the list, %d, is negative", list.PageSize)
	case o.PollInterval < 0:
		return fmt.Errorf("PollInterval, %v, is negative", o.PollInterval)
	case o.ReadInterval < 0:
		return fmt.Errorf("ReadInterval, %v, is negative", o.ReadInterval)
	case o.Since == "":
		return nil
	}
	if _, err := o.Since.Time(time.UTC); err != nil {
		return fmt.Errorf("invalid Since: %w", err)
	}
	return nil
}
