// Package follow delivers each new record of a list to a program that stores it:
//
//	f, err := follow.New(client.ForwardLogPager(params), follow.Options{})
//	if err != nil {
//		return err
//	}
//	return f.Run(ctx, load, store)
//
// In one transaction, store saves an alert or a row for each record of batch.Records and batch.Omitted,
// and replaces the stored position by batch.Position. The function load returns the stored position, which
// is empty at the very first start. Package followsql has both functions for PostgreSQL and SQLite.
//
// # Rules
//
// The newest record stands at the start of the list or at its end. "Above" means closer to it. A record is
// known if its id is in the position, which holds the ids of the records at the newest places.
//
//   - New. An unknown record is new if fewer than Window known ones stand above it, and a known one stands
//     below it, or each record of the list was known. If no known one is left, a record is new if it was
//     created after all of them.
//   - First start. The records that exist become known, and none is new. If there is none, each later one is
//     new.
//   - Poll. A poll reads pages from the newest one inward, until a page has no unknown record, or Window
//     known records were seen.
//   - Sweep. Once in each SweepInterval, a poll reads on until it has 2 × Window records, counted from the
//     first known one. They become known. The position keeps the 4 × Window ids that were seen last.
//   - Missing. If a sweep sees an unknown record between known ones that is not new, if the total grew by
//     more records than were found, or if no known record is left, this is reported.
//   - Failure. The newest page is requested, and a batch is stored, until that succeeds. If a page fails
//     twice, it is read in parts, and a record that fails is left out. If the parts fail, too, the poll
//     stores the records that are new without the page, and a sweep follows soon.
//
// docs/following.md shows a program, explains the rules with an example, and states the guarantees, the
// costs and the limits.
package follow

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
)

// A Follower delivers the new records of a list. It is made by [New], and runs once.
type Follower[T any] struct {
	list    *list[T]
	steps   *steps
	options Options
	maxHeld int         // records, of a scan
	writer  string      // a random text in each position, so that two followers never store the same one
	hasRun  atomic.Bool // Run was called

	// Only the goroutine of Run uses the fields below.
	load     func(context.Context) (string, error)
	store    func(context.Context, Batch[T]) error
	position position
	stored   string // the position that was stored last
	sweeps   schedule
	isEmpty  bool // the list, by the latest sweep
}

// New returns a follower of a list, such as that of [msgpush.Client.ForwardLogPager]. It uses the PageSize of
// the pager, ignores its Prefetch, and sends no request. It returns an error for a pager without Fetch or ID,
// a Name that is not UTF-8, or a number that is negative or too large.
//
// A follower finds out at which end of the list the newest record stands, by the creation times or by the
// ids. If these show no order, or if responses report neither a total nor a number of pages, it must stand
// at the start.
func New[T any](pager msgpush.Pager[T], o Options) (*Follower[T], error) {
	switch {
	case pager.Fetch == nil:
		return nil, errorf("the function Fetch of the pager is nil")
	case pager.ID == nil:
		return nil, errorf("the function ID of the pager is nil")
	case !utf8.ValidString(pager.Name): // the position is JSON
		return nil, errorf("the Name of the pager is not UTF-8: %q", pager.Name)
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
		random:   rand.Int64N,
		pageWait: min(o.PollInterval, firstWait),
	}
	s.status.StepSince = time.Now()
	return &Follower[T]{
		list:    newList(pager, cmp.Or(pager.PageSize, msgpush.DefaultPageSize), s),
		steps:   s,
		options: o,
		maxHeld: maxHeld,
		writer:  cryptorand.Text(),
		sweeps:  schedule{interval: o.SweepInterval},
	}, nil
}

// Run loads the position, polls, and calls store for each batch, one after another in the calling
// goroutine, until ctx ends. Then it returns nil. To end Run for another reason, cancel ctx.
//
// The function load returns the Position of the batch that was stored last, or "" at the very first start.
// The function store stores a batch. A batch is stored when store returns nil. If load or store returns an
// error, Run calls it again, store with the same batch: after 1 s, and after a wait that doubles up to a
// minute.
//
// If the stored position is not batch.Previous, store must store nothing, and return [ErrReplaced]:
// otherwise, records would be delivered twice. Another process has stored a batch, or this batch is stored
// already, but the response to the commit was lost. Run loads the position, and goes on from there.
//
// Run returns an error if it cannot begin, since an argument is nil or Run was called before, if it cannot
// read the stored position, or if that was deleted meanwhile. A position belongs to one list of one
// service, and its filter: its list must have the Name of the pager. Run does not recover from a panic of
// load or store.
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
	defer f.steps.markStep("") // Check fails when the limit has passed since Run returned
	if err := f.loadPosition(ctx); err != nil {
		return err
	}
	for errs.OfContext(ctx) == nil {
		err := f.poll(ctx)
		if err == nil {
			f.steps.succeeded(causeStore)
			f.steps.update(func(s *Status) { s.LastPoll = time.Now() })
		}
		if errors.Is(err, ErrReplaced) {
			if err := f.reload(ctx, err); err != nil {
				return err
			}
		}
		f.steps.pause(ctx, f.options.PollInterval)
	}
	return nil
}

// reload loads the position that another process has stored, by the error of store.
func (f *Follower[T]) reload(ctx context.Context, replaced error) error {
	before := f.stored
	if err := f.loadPosition(ctx); err != nil {
		return err
	}
	if f.stored == before && errs.OfContext(ctx) == nil {
		const format = "load returns the same position, although store returned an error: " +
			"both must use the same row: %w"
		f.steps.failed(causeStore, errorf(format, replaced))
	}
	return nil
}

// loadPosition goes on from the stored position. It returns an error if it cannot read that.
func (f *Follower[T]) loadPosition(ctx context.Context) error {
	var text string
	err := f.steps.retry(ctx, causeLoad, math.MaxInt, time.Second, func(int) (err error) {
		f.steps.markStep("load")
		text, err = f.load(ctx)
		if err != nil {
			return errorf("%w: %w", ErrStore, err)
		}
		return nil
	})
	if err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	f.steps.succeeded(causeLoad)
	position, err := parsePosition(text)
	if err != nil {
		return errorf("the stored position is not that of a batch: %w", err)
	}
	if text == "" && f.stored != "" {
		return errorf("the stored position was deleted meanwhile: restart the program to begin anew")
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
