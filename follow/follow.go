// Package follow delivers each new record of a list to a program that stores it:
//
//	f, err := follow.New(client.ForwardLogPager(params), follow.Options{})
//	if err != nil {
//		return err
//	}
//	return f.Run(ctx, load, store)
//
// In one transaction, store saves an alert or a row for each record of batch.Records and batch.Omitted, and
// replaces the stored position by batch.Position. The function load returns the stored position, which is empty
// at the very first start.
//
// # Rules
//
// The newest record stands at the start of the list or at its end. "Above" means closer to it. A record is
// known if its id is in the position, which holds the ids of the records at the newest places.
//
//   - New. An unknown record is new if fewer than Window known ones stand above it, and a known one stands
//     below it. If no known one is left, a record is new if it was created after all of them.
//   - First start. The records that exist become known, and none is new.
//   - Poll. A poll reads pages from the newest one inward, until a page has no unknown record, or Window
//     known records were seen.
//   - Sweep. Once in each SweepInterval, a poll goes on until it has seen 2 × Window records from the first
//     known one on. They become known, and the position keeps the 4 × Window ids that were seen last.
//   - Missing. If a sweep sees an unknown record between known ones that is not new, if the total grew by
//     more records than were found, or if no known record is left, this is reported.
//   - Failure. The newest page is requested, and a batch is stored, until that succeeds. If a page fails twice, it is
//     requested in parts. A single record that fails is left out. If several in a row fail, the poll stores the
//     records that are new without the page, and a sweep follows soon.
//
// docs/following.md shows the tables and an example, explains the rules, and states the guarantees, the costs
// and the limits.
package follow

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
)

// Options configure a [Follower]. The zero value has the defaults.
type Options struct {
	// PollInterval is the wait after a poll. It is up to 10 % shorter or longer, at random. 0 means 10 s. It is
	// at most a year.
	PollInterval time.Duration
	// SweepInterval is the time from one sweep to the next. A record that appears behind newer ones is delivered
	// by the next sweep. 0 means 10 min.
	SweepInterval time.Duration
	// Window is how many known records may stand above a new one when a sweep sees it. It should be more than
	// the number of records that come within the sum of SweepInterval and the longest delay of a late record. 0
	// means 200. It is at most 1,000,000.
	Window int
	// OnError is called with each error after which Run goes on, in the goroutine of Run. nil logs the error at
	// level Warn with [slog.Default].
	OnError func(error)
}

// ErrReplaced is returned by the function store of [Follower.Run] if the stored position is not Previous of the
// batch: another process has stored a batch, or this one is stored already. Run loads the position then. OnError gets
// the error only if the position has not changed.
var ErrReplaced = errors.New(prefix + "the stored position has changed")

// ErrMissing is wrapped by the error for records that were not delivered, or may not have been.
var ErrMissing = errors.New("records are missing")

// ErrStore is wrapped by the error of [Options].OnError for an error of load or store.
var ErrStore = errors.New("the store failed")

const prefix = "msgpush: following a list: "

// errorf returns an error of this package.
func errorf(format string, args ...any) error { return fmt.Errorf(prefix+format, args...) }

// A Batch holds records to store in one transaction.
type Batch[T any] struct {
	// Records holds new records, the oldest first, in the order of the list; docs/following.md names the
	// exceptions. With Omitted, there are at most 500. There are none in the first batch of a first start, nor
	// after a sweep that changed only the Position: store that batch, too.
	Records []T
	// Omitted holds new records that cannot be decoded, or whose id is 0. A program may send an alert for their
	// JSON. Their order relative to Records is not known. A record without an integer as its id, or with the id 0,
	// gets a negative ID, which is computed from the text of its id, or from its JSON. If the id is 0, the JSON has
	// only the members of T.
	Omitted []msgpush.OmittedRecord
	// Position replaces the stored one. It is usually a text of a few kilobytes; see docs/following.md.
	Position string
	// Previous is the Position of the batch before this one or, after load was called, the one that it returned.
	Previous string
}

// A Follower delivers the new records of a list. It is made by [New], and runs once.
type Follower[T any] struct {
	list    *list[T]
	steps   *steps
	options Options
	maxHeld int         // records, of a reading
	writer  string      // a random text in each position, so that two followers never store the same one
	hasRun  atomic.Bool // Run was called

	// Only the goroutine of Run uses the fields below.
	load            func(context.Context) (string, error)
	store           func(context.Context, Batch[T]) error
	position        position
	stored          string    // the position that was stored last
	sweepAt         time.Time // the poll at this time or later is a sweep; zero: the first poll
	hasSeveralPages bool      // the list has had several pages
}

// New returns a follower of a list, such as that of [msgpush.Client.ForwardLogPager]. It uses the PageSize of
// the pager, ignores its Prefetch, and sends no request. It returns an error for a pager without Fetch or ID,
// or a number that is negative or too large. If responses report neither a total nor a number of pages, or if neither
// the creation times nor the ids show an order, the newest record must stand at the start of the list.
func New[T any](pager msgpush.Pager[T], o Options) (*Follower[T], error) {
	switch {
	case pager.Fetch == nil:
		return nil, errorf("the function Fetch of the pager is nil")
	case pager.ID == nil:
		return nil, errorf("the function ID of the pager is nil")
	case pager.PageSize < 0:
		return nil, errorf("PageSize of the pager is negative: %d", pager.PageSize)
	case pager.PageSize > maxPageSize:
		return nil, errorf("PageSize of the pager is greater than %d: %d", maxPageSize, pager.PageSize)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	o.PollInterval = cmp.Or(o.PollInterval, 10*time.Second)
	o.SweepInterval = cmp.Or(o.SweepInterval, 10*time.Minute)
	o.Window = cmp.Or(o.Window, 200)
	s := &steps{
		random:   rand.N[time.Duration],
		pageWait: min(o.PollInterval, firstWait),
		status:   Status{NextStep: time.Now()},
	}
	return &Follower[T]{
		list:    newList(pager, cmp.Or(pager.PageSize, msgpush.DefaultPageSize), s),
		steps:   s,
		options: o,
		maxHeld: maxHeld,
		writer:  cryptorand.Text(),
	}, nil
}

// check returns an error if a number is negative or too large.
func (o Options) check() error {
	switch {
	case o.PollInterval < 0:
		return errorf("PollInterval is negative: %v", o.PollInterval)
	case o.PollInterval > maxInterval:
		return errorf("PollInterval is longer than a year: %v", o.PollInterval)
	case o.SweepInterval < 0:
		return errorf("SweepInterval is negative: %v", o.SweepInterval)
	case o.Window < 0:
		return errorf("Window is negative: %d", o.Window)
	case o.Window > maxWindow:
		return errorf("Window is greater than %d: %d", maxWindow, o.Window)
	}
	return nil
}

// Run loads the position, polls, and calls store for each batch, one after another in the calling goroutine, until
// ctx ends. Then it returns nil. To end Run for another reason, cancel ctx.
//
// The function load returns the Position of the batch that was stored last, or "" at the very first start. The
// function store stores a batch. A batch is stored when store returns nil. If load or store returns an error, Run
// calls it again, store with the same batch: after 1 s, and after a wait that doubles up to a minute.
//
// If the stored position is not batch.Previous, store must store nothing, and return [ErrReplaced]: otherwise,
// records would be delivered twice. Another process has stored a batch, or this batch is stored already, but the
// response to the commit was lost. Run loads the position, and goes on from there.
//
// Run returns an error if it cannot begin, since an argument is nil or Run was called before, or if it cannot read
// the stored position. A position belongs to one list of one service, and its filter: its list must have the Name
// of the pager. Run does not recover from a panic of load or store.
func (f *Follower[T]) Run(
	ctx context.Context, load func(context.Context) (string, error), store func(context.Context, Batch[T]) error,
) error {
	switch {
	case ctx == nil:
		return errorf("the context is nil")
	case load == nil:
		return errorf("the function load is nil")
	case store == nil:
		return errorf("the function store is nil")
	case f.hasRun.Swap(true):
		return errorf("Run was called before")
	}
	f.load, f.store, f.steps.report = load, store, f.options.OnError
	if f.options.OnError == nil {
		f.steps.report = func(err error) {
			slog.WarnContext(ctx, "msgpush: following a list", "list", f.list.pager.Name, "error", err)
		}
	}
	defer f.steps.begin("") // Check fails when the limit has passed since Run returned
	if err := f.loadPosition(ctx); err != nil {
		return err
	}
	for errs.OfContext(ctx) == nil {
		err := f.poll(ctx)
		switch {
		case errors.Is(err, ErrReplaced):
			before := f.stored
			if err := f.loadPosition(ctx); err != nil {
				return err
			}
			isLoaded := errs.OfContext(ctx) == nil
			if isLoaded && f.stored == before {
				const format = "load returns the same position, although store returned an error: " +
					"both must use the same row: %w"
				f.steps.failed(ofStore, errorf(format, err))
			}
		case err == nil:
			f.steps.succeeded(ofStore)
			f.steps.update(func(s *Status) { s.LastPoll = time.Now() })
		}
		f.steps.pause(ctx, f.options.PollInterval)
	}
	return nil
}

// loadPosition goes on from the stored position. It returns an error if it cannot read that.
func (f *Follower[T]) loadPosition(ctx context.Context) error {
	var text string
	err := f.steps.untilSuccess(ctx, ofLoad, math.MaxInt, time.Second, func(int) (err error) {
		f.steps.begin("load")
		text, err = f.load(ctx)
		if err != nil {
			return errorf("%w: %w", ErrStore, err)
		}
		return nil
	})
	if err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	f.steps.succeeded(ofLoad)
	position, err := parsePosition(text)
	if err != nil {
		return errorf("the stored position is not that of a batch: %w", err)
	}
	if position.started && position.List != f.list.pager.Name {
		const format = "the stored position belongs to the list %q, and not to %q: delete it to begin anew " +
			"or, if both are the same list, set the Name of the pager to the former one"
		return errorf(format, position.List, f.list.pager.Name)
	}
	position.List, position.Writer = f.list.pager.Name, f.writer
	f.position, f.stored = position, text
	return nil
}

// deliver stores new records, which it gets with the newest one first. It returns errors as storeBatch does.
func (f *Follower[T]) deliver(ctx context.Context, newItems []item[T], haveKnownAbove bool) error {
	slices.Reverse(newItems)
	for chunk := range slices.Chunk(newItems, batchSize) {
		var batch Batch[T]
		for _, it := range chunk {
			if f.position.Total > 0 || len(f.position.known) == 0 { // otherwise, the service reports no total
				f.position.Total++
			}
			f.position.add(it.stamp)
			if it.omitted != nil {
				batch.Omitted = append(batch.Omitted, *it.omitted)
			} else {
				batch.Records = append(batch.Records, it.record)
			}
		}
		if !haveKnownAbove { // trim would forget those
			f.position.trim(max(maxBurst, f.maxKnown()))
		}
		if err := f.storeBatch(ctx, batch); err != nil {
			return err
		}
		f.steps.update(func(s *Status) { s.Omitted += int64(len(batch.Omitted)) })
	}
	return nil
}

// maxKnown returns how many ids the position keeps. A sweep sees 2 × Window records. So an id is forgotten when
// 2 × Window others have been seen since. They stand above it, so that it cannot be new again.
func (f *Follower[T]) maxKnown() int { return 4 * f.options.Window }

// storeBatch stores a batch with the current position. It returns an error only if ctx has ended, or if
// the stored position has changed.
func (f *Follower[T]) storeBatch(ctx context.Context, batch Batch[T]) error {
	batch.Position, batch.Previous = f.position.encode(), f.stored
	err := f.steps.untilSuccess(ctx, ofStore, math.MaxInt, time.Second, func(int) error {
		f.steps.begin("store")
		forStore := batch // store may change its slices
		forStore.Records, forStore.Omitted = slices.Clone(batch.Records), slices.Clone(batch.Omitted)
		err := f.store(ctx, forStore)
		if err == nil || errors.Is(err, ErrReplaced) {
			return err
		}
		return errorf("%w: %w", ErrStore, err)
	})
	if err == nil {
		f.stored = batch.Position
		f.steps.succeeded(ofStore)
	}
	return err
}
