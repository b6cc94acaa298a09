package msgpush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
)

// DefaultPageSize is the page size that is asked for where a request has none.
// The document shows no default and no maximum: 20 is this package's own
// choice.
const DefaultPageSize = 20

// A Page is one page of a list (part 2.2 of the document).
type Page[T any] struct {
	// PageNum is the number of this page.
	PageNum int `json:"pageNum"`
	// PageSize is the page size that the service used.
	PageSize int `json:"pageSize"`
	// Total is the number of records of the whole list.
	Total int64 `json:"total"`
	// Pages is the number of pages of the whole list.
	Pages int `json:"pages"`
	// List holds the records of this page. It is not nil on a page that was
	// decoded, even if the service sent null or left it out.
	List []T `json:"list"`
}

// UnmarshalJSON decodes a page.
func (p *Page[T]) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*plainPage[T])(p)); err != nil {
		return err
	}
	p.fillList()
	return nil
}

func (p *Page[T]) fillList() {
	if p.List == nil {
		p.List = []T{}
	}
}

// A plainPage is a Page without its method: for the method itself, and because
// encoding/json goes over what has such a method once more.
type plainPage[T any] Page[T]

// A PageRequest asks for one page of a list. For a field that is 0 the methods
// of [Client] send a default; as the Body of a [Call] it is sent as it is.
type PageRequest struct {
	// Current is the number of the page; 0 asks for the first, number 1.
	Current int `json:"current"`
	// PageSize is how many records a page shall have; 0 asks for
	// [DefaultPageSize]. The document shows no maximum.
	PageSize int `json:"pageSize"`
}

// withDefaults returns the request as the methods of Client send it. The error
// begins like that of what is about to send it.
func (r PageRequest) withDefaults(what string) (PageRequest, error) {
	if r.Current < 0 {
		return r, fmt.Errorf("msgpush: %s: Current is %d, it must not be negative", what, r.Current)
	}
	if r.PageSize < 0 {
		return r, fmt.Errorf("msgpush: %s: PageSize is %d, it must not be negative", what, r.PageSize)
	}
	if r.Current == 0 {
		r.Current = 1
	}
	if r.PageSize == 0 {
		r.PageSize = DefaultPageSize
	}
	return r, nil
}

// list calls a list operation. The body is a [PageRequest], or has one in it.
func list[T any](ctx context.Context, c *Client, op Operation, body any) (*Page[T], error) {
	page, err := specified[plainPage[T]](ctx, c, op, nil, body)
	if err != nil {
		return nil, err
	}
	p := (*Page[T])(page)
	p.fillList()
	return p, nil
}

// A ListOption changes how a list is walked.
type ListOption func(*walkSettings) error

type walkSettings struct{ prefetch int }

// Prefetch asks for up to n pages ahead of the one whose records are being
// used, concurrently. The records come in the same order as without. The
// default, 0, asks for a page when the one before it is used up. 1 gains time only
// where the caller takes some for the records. A negative n is an error, which the
// walk yields before it sends anything.
func Prefetch(n int) ListOption {
	return func(s *walkSettings) error {
		if n < 0 {
			return fmt.Errorf("Prefetch: %d is negative", n)
		}
		s.prefetch = n
		return nil
	}
}

// All walks a list from the page that r asks for to its end, and yields its
// records. It is what [Client.ForwardLogAll] and its like are made of, and walks
// any other list too: fetch returns one page of it, and may be a [Call].
//
// Nothing is sent before the range statement, and each walks anew. What All
// returns is safe for concurrent use if fetch is. With [Prefetch], fetch is called
// in goroutines of its own; leaving the range statement ends their contexts and
// waits for them.
//
// An error is yielded once, with a zero record, after every record that was read
// before it in order, and ends the walk. It says which page it is about, and
// wraps what fetch returned.
//
// # Lists that change
//
// The interface numbers its pages, so a record that arrives or goes moves those
// behind it over the edges of pages. All remembers the ids of the records that it
// has yielded, and where the total has shrunk from one page to the next, it goes
// back as many pages as may have moved. So every record that is in the list from
// the start of the walk to its end is yielded exactly once, as long as from the
// asking for one page to the answer to the next records only arrive, at the head
// or the tail of the list, or only go, from anywhere. What is not seen from
// outside is not made good: where in that time as many records arrive as go, the
// total stays as it is, and records may be missed. A record is never yielded
// twice. Records that arrive or go during the walk may or may not be yielded.
//
// Without an id function nothing is remembered and the walk never goes back: it
// needs no memory, and records may be missed and repeated while the list changes.
// With one it needs up to 48 bytes a record.
//
// # The end
//
// A walk ends with an empty list, with the last page by the newest pages, and
// with an answer whose pageNum is lower than what was asked for. If a service
// tells neither pages nor total, it ends with a page that is shorter than the
// page size or has nothing new. A service that would have it go on for ever is
// an error: if page after page has nothing new, more than the list can have, or
// if there are more records than the totals can explain. Only without an id
// function, and without totals, is there no telling a service that repeats itself
// from a long list: then the context ends the walk, or the caller.
func All[T any](ctx context.Context, fetch func(context.Context, PageRequest) (*Page[T], error), id func(T) int64, r PageRequest, opts ...ListOption) iter.Seq2[T, error] {
	pages := Pages(ctx, fetch, id, r, opts...)
	return func(yield func(T, error) bool) {
		for page, err := range pages {
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, record := range page.List {
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}

// Pages walks a list like [All] and yields its pages, for those who want the
// totals too, or the records in batches. The List of a page has the records that
// no page before it had; the rest is as the service sent it. But for the first, a
// page without such records is not yielded. With an error the page is nil.
func Pages[T any](ctx context.Context, fetch func(context.Context, PageRequest) (*Page[T], error), id func(T) int64, r PageRequest, opts ...ListOption) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		w, err := newWalk(ctx, fetch, id, r, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		defer w.cancelAhead()
		w.run(yield)
	}
}

// A walk is one way through a list.
type walk[T any] struct {
	ctx      context.Context
	fetch    func(context.Context, PageRequest) (*Page[T], error)
	id       func(T) int64
	prefetch int

	seen     map[int64]struct{} // the ids of what was yielded
	position position
	ahead    []*pendingPage[T] // asked for ahead, in order
	fetches  sync.WaitGroup    // for them
}

// A pendingPage is a page that was asked for ahead.
type pendingPage[T any] struct {
	number int
	cancel context.CancelFunc
	done   chan struct{} // closed when page and err are set
	page   *Page[T]
	err    error
}

func newWalk[T any](ctx context.Context, fetch func(context.Context, PageRequest) (*Page[T], error), id func(T) int64, r PageRequest, opts []ListOption) (*walk[T], error) {
	if ctx == nil {
		return nil, errors.New("msgpush: walking a list: the context is nil")
	}
	if fetch == nil {
		return nil, errors.New("msgpush: walking a list: fetch is nil")
	}
	r, err := r.withDefaults("walking a list")
	if err != nil {
		return nil, err
	}
	var s walkSettings
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("msgpush: walking a list: option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(&s); err != nil {
			return nil, fmt.Errorf("msgpush: walking a list: %w", err)
		}
	}
	return &walk[T]{
		ctx:      ctx,
		fetch:    fetch,
		id:       id,
		prefetch: s.prefetch,
		seen:     make(map[int64]struct{}),
		position: position{start: r.Current, size: r.PageSize, returns: id != nil},
	}, nil
}

func (w *walk[T]) run(yield func(*Page[T], error) bool) {
	for number, first := w.position.start, true; ; first = false {
		page, err := w.page(number)
		if err != nil {
			yield(nil, pageError(number, err))
			return
		}
		length := len(page.List)
		page = w.unseen(page, number)
		next, last, err := w.position.advance(number, claims{
			int64(page.PageNum), int64(page.PageSize), page.Total, int64(page.Pages), int64(length), int64(len(page.List)),
		})
		more := err == nil && next <= last
		if more {
			w.askAhead(next, last)
		}
		if (first || len(page.List) > 0) && !yield(page, nil) {
			return
		}
		if err != nil {
			yield(nil, pageError(number, err))
			return
		}
		if !more {
			return
		}
		number = next
	}
}

func pageError(number int, err error) error {
	return &opaqueError{fmt.Sprintf("msgpush: page %d: %s", number, strings.TrimPrefix(err.Error(), "msgpush: ")), err}
}

// unseen returns a page with those of its records that were not yielded yet. It
// leaves the page that was fetched as it is.
func (w *walk[T]) unseen(page *Page[T], number int) *Page[T] {
	list := page.List
	switch {
	case 0 < page.PageNum && page.PageNum < number && !w.position.begun:
		list = nil // the walk was to start beyond the end, and this is the last page
	case w.id != nil:
		list = w.withoutSeen(page.List)
	}
	if len(list) == len(page.List) {
		return page
	}
	p := *page
	p.List = list
	p.fillList()
	return &p
}

// withoutSeen returns the records that were not seen before, which it notes. As
// long as that is all of them, it copies none.
func (w *walk[T]) withoutSeen(records []T) []T {
	unseen := records
	for i, record := range records {
		id := w.id(record)
		_, again := w.seen[id]
		w.seen[id] = struct{}{}
		copied := len(unseen) < len(records)
		switch {
		case again && !copied:
			unseen = slices.Clone(records[:i])
		case !again && copied:
			unseen = append(unseen, record)
		}
	}
	return unseen
}

// page returns a page, which may have been asked for ahead.
func (w *walk[T]) page(number int) (page *Page[T], err error) {
	if len(w.ahead) > 0 {
		p := w.ahead[0]
		w.ahead = w.ahead[1:]
		<-p.done
		p.cancel()
		page, err = p.page, p.err
	} else if err = w.ctx.Err(); err == nil {
		page, err = w.fetch(w.ctx, PageRequest{Current: number, PageSize: w.position.size})
	}
	if err == nil && page == nil {
		err = errors.New("fetch returned neither a page nor an error")
	}
	return page, err
}

// askAhead asks for the pages from next on that are not asked for yet. If the
// walk turns, answers to what was asked before the turn are too old.
func (w *walk[T]) askAhead(next, last int) {
	if len(w.ahead) > 0 && w.ahead[0].number != next {
		w.cancelAhead()
	}
	for len(w.ahead) < w.prefetch && next+len(w.ahead) <= last {
		ctx, cancel := context.WithCancel(w.ctx)
		p := &pendingPage[T]{number: next + len(w.ahead), cancel: cancel, done: make(chan struct{})}
		w.ahead = append(w.ahead, p)
		w.fetches.Go(func() {
			defer close(p.done)
			p.page, p.err = w.fetch(ctx, PageRequest{Current: p.number, PageSize: w.position.size})
		})
	}
}

// cancelAhead ends all that was asked for ahead.
func (w *walk[T]) cancelAhead() {
	for _, p := range w.ahead {
		p.cancel()
	}
	w.ahead = nil
	w.fetches.Wait()
}

// A position is how far a walk has come in a list that changes under it. It is
// about places in the list, counted in records from the first page of the walk
// on, as they were when the last answer was given.
type position struct {
	start   int  // the number of the first page
	size    int  // the page size that is asked for
	returns bool // the walk goes back where records may have moved

	begun bool  // there was an answer
	total int64 // of the last answer that told it
	known bool  // there was one

	// Of the records that stay, those at the places before covered were yielded,
	// and those at the places of island, which lies behind that.
	covered int64
	island  struct{ from, to int64 }

	// The page size of the last answer, in which the places are counted, and
	// whether the service told it or it is a guess.
	used int64
	told bool

	yielded   int64 // records
	explained int64 // records that the totals told so far can explain
	reread    int64 // records of the pages that the walk went back to
	idle      int64 // pages in a row with nothing new
	repeated  int64 // records of these, since the list last changed its length
	pages     int64 // of the list
}

// claims is what an answer says of the list, and what it has.
type claims struct {
	pageNum, pageSize, total, pages int64
	length, unseen                  int64 // records on the page
}

// What a service claims beyond these is taken for them, so that no sum overflows.
const (
	mostPerPage = 1 << 30
	mostRecords = 1 << 60
)

// maxChase is how many pages more than twice those yielded a walk reads with
// nothing new while the list keeps changing, such as one that grows at its head as
// fast as it is walked.
const maxChase = 100

// advance takes the answer to the question for a page, and returns which page is
// the next to ask for, and which is the last, as far as anybody knows.
func (p *position) advance(asked int, c claims) (next, last int, err error) {
	c.pageSize, c.total = min(c.pageSize, mostPerPage), max(0, min(c.total, mostRecords))
	number := asked
	if 0 < c.pageNum && c.pageNum < int64(asked) {
		number = int(c.pageNum)
	}
	size, told := p.pageSize(number, c)
	changed := p.shift(c)
	p.scale(size, told)
	p.covered = max(p.covered, places(1-p.start, size)) // there is nothing before the first page
	p.cover(places(number-p.start, size), places(number-p.start+1, size))
	next = p.number(int64(asked-p.start) + 1)
	if p.returns {
		next = p.number(floorDiv(p.covered, size))
	}
	last = lastPage(asked, number, size, c)
	p.account(asked, next, size, c, changed)
	if next > last {
		return next, last, nil
	}
	return next, last, p.check(size, c)
}

// number returns the number of the page that is so many behind the first.
func (p *position) number(pages int64) int {
	if pages > int64(math.MaxInt-p.start) {
		return math.MaxInt
	}
	return max(1, p.start+int(pages))
}

// pageSize returns the page size that an answer was made with, and whether the
// answer told it. A service that has a smaller one than it was asked for need not
// say so: then the first page that is too short for its place shows it, and the
// guess holds until a page is longer.
func (p *position) pageSize(number int, c claims) (size int64, told bool) {
	size, told = int64(min(p.size, mostPerPage)), c.pageSize > 0
	if told {
		size = c.pageSize
	}
	if p.used > 0 && !p.told && c.length <= p.used {
		return min(p.used, size), false
	}
	if c.length > size {
		return c.length, false
	}
	if told && ceilDiv(c.total, size) == c.pages {
		return size, true
	}
	if isLast := int64(number) >= c.pages && (c.total == 0 || places(number-1, size)+c.length == c.total); isLast ||
		c.length == 0 || c.length == size {
		return size, told
	}
	return c.length, false
}

// shift moves what is covered by as much as the records may have moved since the
// last answer. Where records arrived, each of them is now at its place or behind
// it; where they went, at its place or before it. It reports whether any did.
func (p *position) shift(c claims) (changed bool) {
	if c.total == 0 && c.length > 0 {
		return false // the total is missing
	}
	delta := c.total - p.total
	switch {
	case !p.known:
		p.explained = p.yielded + c.total
	case delta < 0:
		p.covered += delta
		p.island.to += delta
	default:
		p.island.from += delta
		p.explained = min(p.explained+delta, mostRecords)
	}
	if p.island.from >= p.island.to {
		p.island.from, p.island.to = 0, 0
	}
	p.total, p.known = c.total, true
	return delta != 0
}

// scale counts the places in pages of another size. If the service told both, it
// has changed its mind between the two answers, and the places are what they were;
// if not, one of them was a guess, and it is the pages that were read.
func (p *position) scale(size int64, told bool) {
	if p.used > 0 && p.used != size && (!p.told || !told) {
		pages := ceilDiv(max(p.covered, 0), p.used)
		missing := pages*p.used - p.covered
		p.covered = places(int(min(pages, math.MaxInt32)), size) - missing
		p.island.from, p.island.to = 0, 0
	}
	p.used, p.told = size, told
}

// cover adds the places of a page to what is covered.
func (p *position) cover(from, to int64) {
	if from > p.covered {
		p.island.from, p.island.to = from, to
		return
	}
	p.covered = max(p.covered, to)
	if p.island.from <= p.covered {
		p.covered = max(p.covered, p.island.to)
	}
}

// lastPage returns the number of the last page to ask for, as far as an answer
// tells: math.MaxInt if it does not.
func lastPage(asked, number int, size int64, c claims) int {
	pages := c.pages
	if pages <= 0 {
		pages = ceilDiv(c.total, size)
	}
	known := int(min(pages, math.MaxInt))
	switch {
	case c.length == 0:
		return min(asked-1, known)
	case number < asked:
		return number
	case c.pages > 0:
		return known
	case c.total > 0 && (c.unseen > 0 || places(asked, size) < c.total):
		// The next page may be empty, but the page size may also be smaller than
		// it seems.
		return max(asked+1, known)
	case c.total == 0 && c.unseen > 0 && c.length >= size:
		return math.MaxInt
	default:
		return asked
	}
}

// account notes what an answer has.
func (p *position) account(asked, next int, size int64, c claims, changed bool) {
	pages := c.pages
	if c.total > 0 {
		pages = ceilDiv(c.total, size)
	}
	if changed || pages != p.pages {
		p.repeated = 0
	}
	p.idle++
	p.repeated += c.length
	if c.unseen > 0 || !p.begun {
		p.idle, p.repeated = 0, 0
	}
	if next <= asked {
		p.reread = min(p.reread+places(asked-next+1, size), mostRecords)
	}
	p.yielded += c.unseen
	p.pages, p.begun = pages, true
}

// check returns an error if the walk makes no progress, or if there is more than
// there can be. In a list that keeps its length, no more records can come again
// than there were.
func (p *position) check(size int64, c claims) error {
	if p.repeated > p.yielded+size || p.idle > 2*ceilDiv(p.yielded, size)+maxChase {
		return fmt.Errorf("the walk makes no progress: %d pages in a row had no unseen record, more than the list can have", p.idle)
	}
	// What was read again may have been replaced, without the totals telling it.
	if c.total > 0 && p.yielded > p.explained+min(p.reread, p.explained)+size {
		return fmt.Errorf("the service has more records than it says: %d were read, and its totals can explain %d", p.yielded, p.explained)
	}
	return nil
}

// places returns how many places so many pages have.
func places(pages int, size int64) int64 {
	const most = mostRecords / mostPerPage
	return int64(max(-most, min(pages, most))) * size
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -ceilDiv(-a, b)
	}
	return a / b
}

// ceilDiv returns a/b rounded up. Neither is negative.
func ceilDiv(a, b int64) int64 {
	if a%b == 0 {
		return a / b
	}
	return a/b + 1
}
