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
	nextPage int64 // or end
	cursor   cursor
	seen     IDSet
	problems []error // that came with a page
	failed   IDSet   // the pages of problems
	omitted  map[pageOfPass]int64

	prefetch int               // the maximum of depth
	pending  []*pendingPage[T] // the prefetched pages, from nextPage on
	depth    int               // how many pages to prefetch now
	calm     int               // the number of pages since the start or the latest discard
}

// calmPages is the number of pages without a discard after which twice as many pages are
// prefetched. A smaller number costs more requests while the list grows; a larger one costs time
// when the growth stops.
const calmPages = 6

// maxProblems limits the errors of pages that an iteration keeps.
const maxProblems = 10

// New returns an iteration that prefetches up to a number of pages. pageSize is positive, and
// prefetch is not negative.
func New[T any](source Source[T], pageSize, prefetch int) *Iteration[T] {
	return &Iteration[T]{
		source:   source,
		nextPage: 1,
		cursor:   cursor{requested: int64(pageSize), hasIDs: source.ID != nil},
		seen:     IDSet{},
		failed:   IDSet{},
		omitted:  map[pageOfPass]int64{},
		prefetch: prefetch,
		depth:    prefetch,
	}
}

// More reports whether there is a page to request.
func (it *Iteration[T]) More() bool { return it.nextPage != end }

// NextPage returns the number of the page that Next requests.
func (it *Iteration[T]) NextPage() int64 { return it.nextPage }

// Delivered returns the number of records that Next has returned.
func (it *Iteration[T]) Delivered() int64 { return it.cursor.delivered }

// Err returns, after the last page, an error about undelivered records, or nil: the errors that
// came with pages and, if records are missing, one that wraps inconsistentList. Before the last
// page, it returns the former.
func (it *Iteration[T]) Err(inconsistentList error) error {
	problems := slices.Clone(it.problems)
	if missing := it.cursor.missing(); missing > 0 && !it.More() {
		problems = append(problems, it.missingErr(inconsistentList))
	}
	return Join(problems...)
}

func (it *Iteration[T]) missingErr(inconsistentList error) error {
	cur := &it.cursor
	err := fmt.Errorf("%w: %d of %d records came", inconsistentList, cur.came(), cur.came()+cur.missing())
	if !cur.hasTotal {
		err = fmt.Errorf("%w: %d records came, but the reported pages hold more", inconsistentList, cur.came())
	}
	if cur.suspect == 0 {
		return err
	}
	return AtPage(cur.suspect, err)
}

// Next requests a page and returns it. With ids, the page keeps only records that no earlier page
// had. After an error, Next requests the same page again.
func (it *Iteration[T]) Next(ctx context.Context) (*Response[T], error) {
	number := it.nextPage
	page, err := it.response(ctx)
	if page == nil && it.cursor.isBehindEnd(number) && it.source.IsErrorResponse(err) {
		page, err = &Response[T]{Total: it.cursor.total, Pages: int(it.cursor.pages)}, nil
	}
	if page == nil {
		it.Close()
		return nil, err
	}
	received := len(page.List)
	page = it.advance(page)
	onlyRepeats := received > 0 && len(page.List) == 0
	isKnown := onlyRepeats && len(it.problems) > 0 // probably, the service has sent a page twice
	if err != nil && !isKnown {
		it.addProblem(number, err)
	}
	if it.nextPage != number+1 { // another page than the following one: the prefetched pages are the wrong ones
		it.discard()
	}
	it.startPrefetch(ctx)
	return page, nil
}

// addProblem keeps the error that came with a page. The second pass and a step back have the same
// errors once more.
func (it *Iteration[T]) addProblem(number int64, err error) {
	isRepeated := it.cursor.isSecond && len(it.problems) > 0
	if !isRepeated && len(it.problems) < maxProblems && it.failed.Add(number) {
		it.problems = append(it.problems, AtPage(number, err))
	}
}

// advance reduces a page to its new records and determines the next page.
func (it *Iteration[T]) advance(page *Response[T]) *Response[T] {
	isEarlierPage := 0 < page.PageNum && int64(page.PageNum) < it.nextPage
	if it.source.ID == nil && isEarlierPage {
		page = page.withList([]T{}) // with ids, newRecords drops the records that the service repeats
	}
	list := page.List
	if it.source.ID != nil {
		list = it.newRecords(list)
	}
	it.nextPage = it.cursor.advance(pageInfo{
		number:     it.nextPage,
		pageNum:    int64(page.PageNum),
		pageSize:   int64(page.PageSize),
		pages:      int64(page.Pages),
		total:      page.Total,
		records:    page.Length(),
		newRecords: int64(len(list)),
		newOmitted: it.newOmitted(page.Omitted),
	})
	if len(list) < len(page.List) {
		page = page.withList(list)
	}
	return page
}

// A pageOfPass is a page that was requested in the first or in the second pass.
type pageOfPass struct {
	isSecond bool
	number   int64
}

// newOmitted returns how many of the records that a page omits have not been counted in this pass.
// They have no ids to compare, so a page that is requested again counts only if it omits more.
func (it *Iteration[T]) newOmitted(omitted int) int64 {
	page := pageOfPass{it.cursor.isSecond, it.nextPage}
	counted := it.omitted[page]
	if int64(omitted) <= counted {
		return 0
	}
	it.omitted[page] = int64(omitted)
	return int64(omitted) - counted
}

// newRecords returns the records that have not been seen, and remembers their ids. It returns list
// itself if all records are new.
func (it *Iteration[T]) newRecords(list []T) []T {
	firstOld := 0
	for firstOld < len(list) && it.seen.Add(it.source.ID(list[firstOld])) {
		firstOld++
	}
	if firstOld == len(list) {
		return list
	}
	fresh := slices.Clone(list[:firstOld])
	for _, record := range list[firstOld+1:] {
		if it.seen.Add(it.source.ID(record)) {
			fresh = append(fresh, record)
		}
	}
	return fresh
}

// response returns the response for the next page, which may have been prefetched. A prefetched
// response is outdated if its total is below the latest total, but not below the total when it was
// requested: then it is older than the latest response, and would cause a step back. For example,
// it was requested at the total 40 and reports 41, and the latest response reports 42.
func (it *Iteration[T]) response(ctx context.Context) (*Response[T], error) {
	if len(it.pending) == 0 {
		return it.source.Page(ctx, it.nextPage, it.pageSize())
	}
	first := it.pending[0]
	page, err := first.wait() // if it panics, Close waits for the other pages, and re-raises the panic
	it.pending = it.pending[1:]
	if page == nil {
		return nil, err
	}
	isOutdated := page.Total < it.cursor.total && page.Total >= first.total
	if isOutdated {
		it.discard()
		return it.source.Page(ctx, it.nextPage, it.pageSize())
	}
	return page, err
}

// pageSize returns the page size of the requests.
func (it *Iteration[T]) pageSize() int { return int(it.cursor.requested) }

// A pendingPage is a prefetched page. total was the latest total at its request. page, err and
// panicked are set when done is closed.
type pendingPage[T any] struct {
	total  int64
	cancel context.CancelFunc

	done     chan struct{}
	page     *Response[T]
	err      error
	panicked any // by Fetch; nil: it did not panic
}

// wait returns the response, or re-raises the panic of Fetch.
func (p *pendingPage[T]) wait() (*Response[T], error) {
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
	if !it.More() {
		return
	}
	last := it.cursor.lastPage(max(1, it.cursor.size))
	for len(it.pending) < it.depth {
		number := it.nextPage + int64(len(it.pending))
		if number > last {
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
	size := it.pageSize()
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
		p.page, p.err = it.source.Page(ctx, number, size)
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
