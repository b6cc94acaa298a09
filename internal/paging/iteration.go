package paging

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// An Iteration returns the pages of a list, one after another. It is not safe for concurrent use.
type Iteration[T any] struct {
	source   Source[T]
	pageSize int // of the requests

	nextPage, lastPage int64
	cursor             cursor
	seen               IDSet
	contradiction      *Contradiction // the first one

	prefetch int               // the maximum of depth
	pending  []*pendingPage[T] // the prefetched pages, from nextPage on
	depth    int               // how many pages to prefetch now
	calm     int               // the number of pages since the start or the latest discard
}

// calmPages is the number of pages without a discard after which twice as many pages are
// prefetched. A smaller number costs more requests while the list grows; a larger one costs time
// when the growth stops.
const calmPages = 6

// New returns an iteration that prefetches up to a number of pages. pageSize is positive, and
// prefetch is not negative.
func New[T any](source Source[T], pageSize, prefetch int) *Iteration[T] {
	return &Iteration[T]{
		source:   source,
		pageSize: pageSize,
		nextPage: 1,
		lastPage: 1,
		cursor:   cursor{requested: min(int64(pageSize), maxPages), stepBack: source.ID != nil},
		seen:     IDSet{},
		prefetch: prefetch,
		depth:    prefetch,
	}
}

// NewTolerant returns an iteration that goes on after the first lack of progress, and limits its
// requests whatever the responses are; see noProgress.
func NewTolerant[T any](source Source[T], pageSize int) *Iteration[T] {
	it := New(source, pageSize, 0)
	it.cursor.tolerant = true
	return it
}

// UpdateTotal uses the reported numbers of a response that Next did not request.
func (it *Iteration[T]) UpdateTotal(page *Page[T]) {
	it.cursor.updateTotal(pageInfo{
		pages: max(int64(page.Pages), 0),
		total: min(max(page.Total, 0), maxTotal),
	})
}

// More reports whether there is a page to request.
func (it *Iteration[T]) More() bool { return it.nextPage <= it.lastPage }

// NextPage returns the number of the page that Next requests.
func (it *Iteration[T]) NextPage() int64 { return it.nextPage }

// Delivered returns the number of records that Next has returned.
func (it *Iteration[T]) Delivered() int64 { return it.cursor.delivered }

// Contradiction returns the first contradiction, or nil. Iteration may go on after it.
func (it *Iteration[T]) Contradiction() *Contradiction { return it.contradiction }

// Next requests a page and returns it. With ids, the page keeps only records that no earlier page
// had. After an error, Next requests the same page again.
func (it *Iteration[T]) Next(ctx context.Context) (*Page[T], error) {
	number := it.nextPage
	page, err := it.response(ctx)
	if err != nil {
		it.Close()
		return nil, err
	}
	page = it.advance(page)
	if it.nextPage != number+1 { // another page than the following one: the prefetched pages are the wrong ones
		it.discard()
	}
	it.startPrefetch(ctx)
	return page, nil
}

// advance reduces a page to its new records and determines the next and the last page.
func (it *Iteration[T]) advance(page *Page[T]) *Page[T] {
	p := inspect(pageInfo{
		number:   it.nextPage,
		pageNum:  int64(page.PageNum),
		pageSize: int64(page.PageSize),
		pages:    int64(page.Pages),
		total:    page.Total,
		records:  int64(len(page.List) + page.Omitted),
	})
	list, duplicate := page.List, ""
	if p.absent && it.source.ID == nil {
		list = []T{} // the service sent an earlier page again; with ids, newRecords drops its records
	} else if it.source.ID != nil {
		list, duplicate = it.newRecords(list)
	}
	if len(list) < len(page.List) {
		page = page.withList(list)
	}
	p.newRecords = int64(len(list))
	to := it.cursor.advance(p)
	it.report(p.number, duplicate)
	it.report(p.number, to.contradiction)
	it.nextPage, it.lastPage = to.next, to.last
	return page
}

// report records the first contradiction of the iteration. An empty text is none.
func (it *Iteration[T]) report(page int64, text string) {
	if text != "" && it.contradiction == nil {
		it.contradiction = &Contradiction{page, text}
	}
}

// newRecords returns the records that have not been seen, and remembers their ids. It returns list
// itself if all records are new. It also returns a contradiction if two records of list have the
// same id.
func (it *Iteration[T]) newRecords(list []T) (fresh []T, contradiction string) {
	firstOld := 0
	for firstOld < len(list) && it.seen.Add(it.source.ID(list[firstOld])) {
		firstOld++
	}
	if firstOld == len(list) {
		return list, ""
	}
	fresh = slices.Clone(list[:firstOld])
	for _, record := range list[firstOld+1:] {
		if it.seen.Add(it.source.ID(record)) {
			fresh = append(fresh, record)
		}
	}
	onPage := IDSet{}
	for _, record := range list {
		if id := it.source.ID(record); !onPage.Add(id) {
			return fresh, fmt.Sprintf("two records have the id %d", id)
		}
	}
	return fresh, ""
}

// response returns the response for the next page, which may have been prefetched. A prefetched
// response is outdated if its total is below the latest total, but not below the total when it was
// requested: then it is older than the latest response, and would cause a step back. For example,
// it was requested at the total 40 and reports 41, and the latest response reports 42.
func (it *Iteration[T]) response(ctx context.Context) (*Page[T], error) {
	if len(it.pending) == 0 {
		return it.source.Page(ctx, it.nextPage, it.pageSize)
	}
	first := it.pending[0]
	page, err := first.wait() // if it panics, Close waits for the other pages, and re-raises the panic
	it.pending = it.pending[1:]
	if err != nil {
		return nil, err
	}
	isOutdated := page.Total < it.cursor.total && page.Total >= first.total
	if isOutdated {
		it.discard()
		return it.source.Page(ctx, it.nextPage, it.pageSize)
	}
	return page, nil
}

// A pendingPage is a prefetched page. total was the latest total at its request. page, err and
// panicked are set when done is closed.
type pendingPage[T any] struct {
	total  int64
	cancel context.CancelFunc

	done     chan struct{}
	page     *Page[T]
	err      error
	panicked any // by Fetch; nil: it did not panic
}

// wait returns the response, or re-raises the panic of Fetch.
func (p *pendingPage[T]) wait() (*Page[T], error) {
	<-p.done
	if p.panicked != nil {
		panic(p.panicked)
	}
	return p.page, p.err
}

// startPrefetch prefetches up to depth pages. It doubles depth after each calmPages pages without a
// discard.
func (it *Iteration[T]) startPrefetch(ctx context.Context) {
	it.calm++
	if it.calm%calmPages == 0 {
		it.depth = min(max(1, 2*it.depth), it.prefetch)
	}
	for len(it.pending) < it.depth {
		number := it.nextPage + int64(len(it.pending))
		if number > it.lastPage {
			return
		}
		it.pending = append(it.pending, it.begin(ctx, number))
	}
}

// discard drops the prefetched pages. It halves depth, but only once per page.
func (it *Iteration[T]) discard() {
	it.Close()
	if it.calm > 0 {
		it.depth /= 2
	}
	it.calm = 0
}

// begin begins to fetch a page in another goroutine.
func (it *Iteration[T]) begin(ctx context.Context, number int64) *pendingPage[T] {
	ctx, cancel := context.WithCancel(ctx)
	p := &pendingPage[T]{
		total:  it.cursor.total,
		cancel: cancel,
		done:   make(chan struct{}),
		err:    errors.New("fetch did not return"), // replaced when it returns
	}
	go func() {
		defer close(p.done) // even if Fetch panics or calls runtime.Goexit
		defer func() { p.panicked = recover() }()
		defer cancel()
		p.page, p.err = it.source.Page(ctx, number, it.pageSize)
	}()
	return p
}

// Close cancels all prefetches and waits for them, even if one of them panicked, and re-raises the
// panic of the first such page.
func (it *Iteration[T]) Close() {
	for _, p := range it.pending {
		p.cancel()
		defer func() { _, _ = p.wait() }() // deferred, so that a panic does not skip the others
	}
	it.pending = nil
}

// An IDSet holds ids, one bit each: the ids from 64·n to 64·n+63 share a word.
type IDSet map[int64]uint64

// Add adds an id and reports whether it is new.
func (s IDSet) Add(id int64) bool {
	word, bit := s[id>>6], uint64(1)<<(id&63)
	s[id>>6] = word | bit
	return word&bit == 0
}

// AddAll adds the ids of another set, which does not change.
func (s IDSet) AddAll(other IDSet) {
	for word, bits := range other {
		s[word] |= bits
	}
}

// Has reports whether an id was added.
func (s IDSet) Has(id int64) bool {
	bit := uint64(1) << (id & 63)
	return s[id>>6]&bit != 0
}
