package paging

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/msgpush/internal/errs"
)

// An Iteration returns the pages of a list, one after another. It is not safe for concurrent use.
type Iteration[T, O any] struct {
	source      Source[T, O]
	nextPage    int64 // or noPage
	pageSize    int   // of the first pass
	cursor      cursor
	seen        IDSet // ids of the delivered records
	omitted     IDSet // ids of the records that were left out
	problems    []error
	missingPage int64 // the page in place of which page 1 was requested last; 0: none since the last new record
	lastPageErr error // of the last page of the list, or a page behind it, that does not exist; nil: it does

	prefetch int                  // the maximum of depth
	pending  []*pendingPage[T, O] // the prefetched pages, from nextPage on
	depth    int                  // how many pages to prefetch now: one more after each page, 0 after Close
}

// maxProblems is the number of errors of pages that an iteration keeps: each page of a long list may have
// one.
const maxProblems = 10

// New returns an iteration that prefetches up to a number of pages. pageSize is positive, and prefetch is not
// negative.
func New[T, O any](source Source[T, O], pageSize, prefetch int) *Iteration[T, O] {
	return &Iteration[T, O]{
		source:   source,
		nextPage: 1,
		pageSize: pageSize,
		cursor:   cursor{requested: int64(pageSize), hasIDs: source.ID != nil},
		seen:     IDSet{},
		omitted:  IDSet{},
		prefetch: prefetch,
		depth:    prefetch,
	}
}

// More reports whether there is a page to request.
func (it *Iteration[T, O]) More() bool { return it.nextPage != noPage }

// Came returns the number of records that Next has returned, plus the records that were left out.
func (it *Iteration[T, O]) Came() int64 { return it.cursor.came.records() }

// Err returns the errors that came with pages, or nil. After the last page, if records are missing, it also
// returns an error that wraps inconsistentList.
func (it *Iteration[T, O]) Err(inconsistentList error) error {
	problems := slices.Clone(it.problems)
	if it.cursor.isIncomplete() && !it.More() {
		problems = append(problems, it.lastPageErr, it.missingErr(inconsistentList))
	}
	return errs.Join(problems...)
}

func (it *Iteration[T, O]) missingErr(inconsistentList error) error {
	came, missing := it.Came(), it.cursor.missing()
	err := fmt.Errorf("%w: %d of %d records came", inconsistentList, came, came+missing)
	if missing == 0 {
		reason := "the total changed too often"
		switch {
		case it.cursor.lacksPage:
			reason = "a page does not exist that the total promises"
		case !it.cursor.hasTotal:
			reason = "too many pages had no new record"
		}
		err = fmt.Errorf("%w: %d records came, but others may be missing, since %s", inconsistentList, came, reason)
	} else if !it.cursor.hasTotal {
		err = fmt.Errorf("%w: %d records came, but the reported pages hold more", inconsistentList, came)
	}
	if it.cursor.came.firstShort == 0 {
		return err
	}
	return AtPage(it.cursor.came.firstShort, err)
}

// Next requests a page and returns it. With ids, the page keeps only records that no earlier page had. An
// error names the page that failed. After it, Next requests the same page again.
func (it *Iteration[T, O]) Next(ctx context.Context) (*Response[T, O], error) {
	page, err := it.fetchNext(ctx)
	number := it.nextPage
	if page == nil {
		it.Close()
		return nil, AtPage(number, err)
	}
	omitted := len(page.Omitted)
	page = it.advance(page)
	isRepeated := omitted > 0 && len(page.Omitted) == 0 // err is about records that were left out before
	if err != nil && !isRepeated {
		it.addProblem(number, err)
	}
	if it.nextPage != number+1 { // another page than the following one: the prefetched pages are the wrong ones
		it.Close()
	}
	it.startPrefetch(ctx)
	return page, nil
}

// fetchNext returns the response for the next page. If the first page of the second pass fails, it is
// requested with the old page size: a service may accept only certain ones.
func (it *Iteration[T, O]) fetchNext(ctx context.Context) (*Response[T, O], error) {
	page, err := it.response(ctx)
	beginsSecondPass := it.cursor.isSecond && it.cursor.size == 0
	if page == nil && beginsSecondPass {
		it.cursor.requested = int64(it.pageSize)
		page, err = it.request(ctx)
	}
	it.lastPageErr = nil
	if page == nil && it.nextPage > 1 && errors.Is(err, ErrNoSuchPage) {
		return it.withoutPage(ctx, err)
	}
	return page, err
}

// request requests the next page.
func (it *Iteration[T, O]) request(ctx context.Context) (*Response[T, O], error) {
	return it.source.Page(ctx, it.nextPage, int(it.cursor.requested))
}

// withoutPage applies the rule of pages that do not exist, to the next page.
func (it *Iteration[T, O]) withoutPage(ctx context.Context, noSuchPage error) (*Response[T, O], error) {
	page, err := it.request(ctx) // the service may have failed for a moment
	if page != nil || !errors.Is(err, ErrNoSuchPage) {
		return page, err
	}
	if it.cursor.total == unknown {
		return nil, noSuchPage
	}
	last := it.cursor.lastPage()
	mayHaveShrunk := it.nextPage <= last && it.nextPage != it.missingPage
	if mayHaveShrunk && it.source.ID != nil { // without ids, the records of page 1 would come twice
		it.missingPage = it.nextPage
		it.Close()
		it.nextPage = 1 // shows whether the list has become shorter
		return it.request(ctx)
	}
	if it.nextPage < last {
		return nil, noSuchPage
	}
	it.cursor.noSuchPage(it.nextPage)
	it.lastPageErr = AtPage(it.nextPage, err)
	return new(Response[T, O]), nil
}

// addProblem keeps the error that came with a page, unless it is kept already.
func (it *Iteration[T, O]) addProblem(number int64, err error) {
	isKept := slices.ContainsFunc(it.problems, func(kept error) bool {
		return errors.Unwrap(kept).Error() == err.Error()
	})
	if !isKept && len(it.problems) < maxProblems {
		it.problems = append(it.problems, AtPage(number, err))
	}
}

// advance reduces a page to what no earlier page had, and determines the next page.
func (it *Iteration[T, O]) advance(page *Response[T, O]) *Response[T, O] {
	isEarlierPage := 0 < page.PageNum && int64(page.PageNum) < it.nextPage
	if it.source.ID == nil && isEarlierPage {
		page = page.with([]T{}, page.Omitted) // with ids, newRecords drops the records that the service repeats
	}
	list, omitted := page.List, page.Omitted
	if it.source.ID != nil {
		list, omitted = it.newRecords(list), it.newOmitted(omitted)
	}
	withoutID := it.countWithoutID(omitted)
	if len(list)+len(omitted) > 0 {
		it.missingPage = 0
	}
	it.nextPage = it.cursor.advance(pageInfo{
		number:     it.nextPage,
		pageSize:   int64(page.PageSize),
		pages:      int64(page.Pages),
		total:      page.Total,
		records:    int64(len(page.List) + len(page.Omitted)),
		newRecords: it.countNew(list) + int64(len(omitted)) - withoutID,
		withoutID:  withoutID,
		pageNum:    int64(page.PageNum),
	})
	if len(list) < len(page.List) || len(omitted) < len(page.Omitted) {
		page = page.with(list, omitted)
	}
	return page
}

// newRecords returns the records that have not been seen, and remembers their ids. It returns list itself if
// all records are new.
func (it *Iteration[T, O]) newRecords(list []T) []T {
	firstOld := 0
	for firstOld < len(list) && it.seen.Add(it.source.ID(list[firstOld])) {
		firstOld++
	}
	if firstOld == len(list) {
		return list
	}
	it.checkZeroIDs(list)
	fresh := slices.Clone(list[:firstOld])
	for _, record := range list[firstOld+1:] {
		if it.seen.Add(it.source.ID(record)) {
			fresh = append(fresh, record)
		}
	}
	return fresh
}

// checkZeroIDs keeps an error for a page with several records whose id is 0: only one of them is delivered.
func (it *Iteration[T, O]) checkZeroIDs(list []T) {
	zeros := 0
	for _, record := range list {
		if it.source.ID(record) == 0 {
			zeros++
		}
	}
	if zeros > 1 {
		const format = "%w: %d records have the id 0, and at most one of them is delivered: a Pager without ID delivers all"
		it.addProblem(it.nextPage, fmt.Errorf(format, it.source.ErrOmitted, zeros))
	}
}

// countNew returns how many of the new records come for the first time: the others were left out before.
func (it *Iteration[T, O]) countNew(list []T) int64 {
	n := len(list)
	if len(it.omitted) == 0 { // as usual: the loop costs a call for each record
		return int64(n)
	}
	for _, record := range list {
		if it.omitted.Has(it.source.ID(record)) {
			n--
		}
	}
	return int64(n)
}

// newOmitted returns the records without an id, and the records that come for the first time.
func (it *Iteration[T, O]) newOmitted(omitted []O) []O {
	var fresh []O
	for _, record := range omitted {
		id := it.source.OmittedID(record)
		if id == 0 || !it.seen.Has(id) && it.omitted.Add(id) {
			fresh = append(fresh, record)
		}
	}
	return fresh
}

func (it *Iteration[T, O]) countWithoutID(omitted []O) (n int64) {
	for _, record := range omitted {
		if it.source.ID == nil || it.source.OmittedID(record) == 0 {
			n++
		}
	}
	return n
}
