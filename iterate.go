package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// ErrInconsistentList is wrapped by the error of an iteration whose responses contradict
// themselves or each other. The error names the page. [Lister.All] ends with it, and
// [Lister.Follow] goes on. Another iteration may succeed, since the list changes. The
// contradictions are:
//   - A response reports that the requested page exists, but has the number of an
//     earlier page.
//   - A page that exists by the reported numbers is empty twice in a row.
//   - Iteration reached the last page, but the reported total extends beyond it.
//   - Two records of a page have the same id.
//   - The response reports further pages, but too many records in a row are repeated,
//     or more records were delivered than the reported totals allow.
var ErrInconsistentList = errors.New("msgpush: inconsistent list")

// A Lister iterates over the pages of a list. Methods of [Client] such as
// [Client.ForwardLogAll] use a Lister. It also iterates over other lists: Fetch may
// use [Call].
type Lister[T any] struct {
	// Fetch returns one page. With [Prefetch], it is called concurrently.
	Fetch func(context.Context, PageRequest) (*Page[T], error)
	// ID returns the id of a record. If ID is nil, iteration cannot recognize records:
	// if the list changes, records may be missed or repeated.
	ID func(T) int64
}

// A ListOption configures the iteration over a list. A later option overrides an
// earlier one.
type ListOption func(*listSettings)

type listSettings struct{ prefetch int }

// calmPages is the number of pages without an outdated response after which twice as
// many pages are prefetched. A smaller number costs more requests while the list grows; a
// larger one costs time when the growth stops.
const calmPages = 6

// Prefetch fetches up to n pages concurrently, ahead of the page whose records are
// being delivered. The order of the records does not change. The default is 0: a
// page is fetched when the records of the previous page have been delivered. With
// 1, a page is fetched while the records of the previous page are delivered. A negative
// n is an error, which iteration yields before it sends a request.
//
// While the list changes, prefetched responses are often outdated and requested anew.
// Fewer pages are then prefetched, and n again when the changes stop. If the service
// reports no total, prefetching a list that changes may miss records.
func Prefetch(n int) ListOption { return func(s *listSettings) { s.prefetch = n } }

// All returns an iterator over the records of a list, from the start page, which r
// requests, to the last page. The range statement sends the first request; each range
// statement iterates anew. The iterator is safe for concurrent use if Fetch is.
//
// An error is yielded once, with a zero record, after the records of all pages
// before it, and ends the iteration. Unless the arguments are invalid, it names the
// page and wraps [ErrInconsistentList], the error of Fetch, or the error of the context
// and its cause. A panic in Fetch is re-raised in the goroutine of the range statement, with the
// same value. Leaving the range statement cancels all prefetches and waits for
// them.
//
// # Lists that change
//
// Records that are inserted or deleted shift other records across page boundaries.
// With an ID function, All remembers the ids of the records, and steps back if the
// total shrinks. Every record that is in the list throughout, and was on the start
// page or later at the first response, is delivered exactly once, if
//
//   - between two consecutive responses, records are only inserted or only deleted, at
//     any offset, and
//   - the service reports the total.
//
// A record that is inserted or deleted during the iteration is delivered once or not
// at all. Records before the start page may also be delivered, each at most
// once.
//
// Limitation: if records are both inserted and deleted between two consecutive
// responses, records may be missed. With [Prefetch], two responses that iteration uses
// one after the other may be further apart in time. If iteration starts after page 1,
// docs/lists.md lists further limits.
//
// Remembering the ids takes less than 1 byte per record if they are consecutive,
// and up to 48 bytes if they are random. Without an ID function, memory use is
// constant.
//
// # When iteration ends
//
// Iteration ends after the last page. The number of the last page is Pages of the latest
// response or, if that is 0, the last reported Total divided by the page size. If the
// latest response contradicts itself, such as by a total beyond that page, iteration yields
// [ErrInconsistentList] instead of ending. If the service reports neither pages nor total,
// iteration ends with the first page that has no new record. Without an ID function, this
// is the first empty page.
func (l Lister[T]) All(ctx context.Context, r PageRequest, opts ...ListOption) iter.Seq2[T, error] {
	return recordsOf(l.Pages(ctx, r, opts...))
}

// recordsOf returns an iterator over the records of pages.
func recordsOf[T any](pages iter.Seq2[*Page[T], error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none [1]T
		for page, err := range pages {
			records := none[:] // an error is yielded with a zero record
			if err == nil {
				records = page.List
			}
			for _, record := range records {
				if !yield(record, err) {
					return
				}
			}
		}
	}
}

// Pages is like [Lister.All], but yields pages. The List of a page holds the
// records that have not been yielded before; the other fields are as the service
// sent them. A page without such records is not yielded, except once if no page has a
// record. With an error, the page is nil.
func (l Lister[T]) Pages(ctx context.Context, r PageRequest, opts ...ListOption) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		it, err := l.newIteration(ctx, r, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		defer it.discard()
		for it.more() {
			page, err := it.next(ctx)
			isEmptyList := it.contradiction == nil && !it.more() && it.cursor.delivered == 0
			if err == nil && (len(page.List) > 0 || isEmptyList) && !yield(page, nil) {
				return
			}
			if err = cmp.Or(err, it.contradiction); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// An iteration is the state of an iteration over a list.
type iteration[T any] struct {
	Lister[T]
	listSettings
	pageSize           int64 // of the requests
	nextPage, lastPage int64
	cursor             cursor
	seen               idSet
	contradiction      error // the first one

	pending []pendingPage[T] // the prefetched pages, from nextPage on
	depth   int              // how many pages to prefetch now
	calm    int              // the number of pages since prefetched pages were discarded
}

func (l Lister[T]) newIteration(ctx context.Context, r PageRequest, opts []ListOption) (*iteration[T], error) {
	r, err := r.withDefaults("list iteration")
	if err != nil {
		return nil, err
	}
	it := &iteration[T]{Lister: l, pageSize: int64(r.PageSize), nextPage: int64(r.Current), lastPage: int64(r.Current), seen: idSet{}, calm: 1}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("msgpush: list iteration: option %d of %d is nil", i+1, len(opts))
		}
		opt(&it.listSettings)
	}
	switch {
	case ctx == nil:
		return nil, errors.New("msgpush: list iteration: the context is nil")
	case l.Fetch == nil:
		return nil, errors.New("msgpush: list iteration: Fetch is nil")
	case it.prefetch < 0:
		return nil, fmt.Errorf("msgpush: list iteration: Prefetch: %d is negative", it.prefetch)
	}
	it.depth, it.cursor = it.prefetch, cursor{requested: min(it.pageSize, maxPages), stepBack: l.ID != nil}
	return it, nil
}

// more reports whether there is a page to request.
func (it *iteration[T]) more() bool { return it.nextPage <= it.lastPage }

// next requests a page and returns it with its new records. After an error, which is the error
// of Fetch, it requests the same page again. After a contradiction, iteration may go on.
func (it *iteration[T]) next(ctx context.Context) (*Page[T], error) {
	number := it.nextPage
	page, err := it.response(ctx)
	if err != nil {
		it.discard()
		return nil, &pageError{number, err}
	}
	page = it.advance(page)
	it.startPrefetch(ctx, it.nextPage == number+1)
	return page, nil
}

// advance reduces a page to its new records and determines the next and the last page.
func (it *iteration[T]) advance(page *Page[T]) *Page[T] {
	p := it.cursor.inspect(pageInfo{number: it.nextPage, pageNum: int64(page.PageNum), pageSize: int64(page.PageSize), pages: int64(page.Pages), total: page.Total, records: int64(len(page.List))})
	list, err := page.List, error(nil)
	if p.absent && (it.cursor.size == 0 || it.ID == nil) {
		list = []T{} // empty, or another page; with ids, newRecords drops seen records
	} else if it.ID != nil {
		list, err = it.newRecords(list)
	}
	if len(list) < len(page.List) {
		page = page.withList(list)
	}
	p.newRecords = int64(len(list))
	ignored := it.cursor.ignoreNumbers // before advance, which sets it for a contradiction that counts
	next, last, contradiction := it.cursor.advance(p)
	if err == nil && !ignored {
		err = contradiction
	}
	if err != nil && it.contradiction == nil {
		it.contradiction = &pageError{it.nextPage, err}
	}
	it.nextPage, it.lastPage = next, last
	return page
}

// newRecords returns the records that have not been seen, and remembers their ids. It
// returns list itself if all records are new, and an error if two records of list have the same id.
func (it *iteration[T]) newRecords(list []T) ([]T, error) {
	isOld := func(record T) bool { return !it.seen.add(it.ID(record)) }
	first := slices.IndexFunc(list, isOld)
	if first < 0 {
		return list, nil
	}
	fresh := slices.Concat(list[:first], slices.DeleteFunc(slices.Clone(list[first+1:]), isOld))
	ids := idSet{}
	if i := slices.IndexFunc(list, func(record T) bool { return !ids.add(it.ID(record)) }); i >= 0 {
		return fresh, fmt.Errorf("%w: two records have the id %d", ErrInconsistentList, it.ID(list[i]))
	}
	return fresh, nil
}

// response returns the response for the next page, which may have been prefetched. A
// prefetched response is outdated if its total is smaller than the latest one although
// nothing was deleted since the request: it is older than the latest response and would
// cause a step back.
func (it *iteration[T]) response(ctx context.Context) (*Page[T], error) {
	if len(it.pending) > 0 {
		page, err := it.pending[0].wait()
		total := it.pending[0].total
		it.pending = it.pending[1:]
		if err != nil || page.Total >= it.cursor.total || page.Total < total {
			return page, err
		}
		it.discard()
	}
	return it.fetch(ctx, it.nextPage)
}

func (it *iteration[T]) fetch(ctx context.Context, number int64) (*Page[T], error) {
	if contextEnded(ctx) {
		return nil, endOfContext(ctx, "")
	}
	page, err := it.Fetch(ctx, PageRequest{Current: int(number), PageSize: int(it.pageSize)})
	if page == nil || err != nil {
		return nil, cmp.Or(err, errors.New("the Fetch function returned neither a page nor an error"))
	}
	return page, nil
}

// A pendingPage was requested when the latest total was total. wait returns the response
// or re-raises the panic of Fetch.
type pendingPage[T any] struct {
	total  int64
	cancel context.CancelFunc
	wait   func() (*Page[T], error)
}

// startPrefetch decides how many pages to prefetch, and prefetches them. If the next page
// does not follow the latest one, iteration steps back, and the prefetched responses are
// outdated.
func (it *iteration[T]) startPrefetch(ctx context.Context, follows bool) {
	if !follows {
		it.discard()
	}
	if it.calm == 0 {
		it.depth /= 2
	} else if it.calm%calmPages == 0 {
		it.depth = min(max(1, 2*it.depth), it.prefetch)
	}
	it.calm++
	for len(it.pending) < it.depth && int64(len(it.pending)) <= it.lastPage-it.nextPage {
		ctx, cancel := context.WithCancel(ctx)
		number, done, panicked := it.nextPage+int64(len(it.pending)), make(chan struct{}), any(nil)
		page, err := (*Page[T])(nil), errors.New("fetch did not return")
		go func() {
			defer close(done) // even if Fetch panics or calls runtime.Goexit
			defer func() { panicked = recover() }()
			defer cancel()
			page, err = it.fetch(ctx, number)
		}()
		it.pending = append(it.pending, pendingPage[T]{it.cursor.total, cancel, func() (*Page[T], error) {
			if <-done; panicked != nil {
				panic(panicked)
			}
			return page, err
		}})
	}
}

// discard cancels all prefetches and waits for them, even if one of them panicked, and
// re-raises the panic of the first such page.
func (it *iteration[T]) discard() {
	for _, p := range it.pending {
		p.cancel()
		defer func() { _, _ = p.wait() }()
	}
	it.pending, it.calm = nil, 0
}

// An idSet holds ids, one bit each: the bits of 64 consecutive ids share a word.
type idSet map[int64]uint64

// add adds an id and reports whether it is new.
func (s idSet) add(id int64) bool {
	word, bit := s[id>>6], uint64(1)<<(id&63)
	s[id>>6] = word | bit
	return word&bit == 0
}

// has reports whether an id was added.
func (s idSet) has(id int64) bool { return s[id>>6]&(1<<(id&63)) != 0 }
