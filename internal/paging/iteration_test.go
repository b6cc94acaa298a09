package paging

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/errs"
)

var (
	errInconsistent = errors.New("msgpush: inconsistent list")
	errBad          = errors.New("a record cannot be decoded")
	errNoPage       = errs.Hide("HTTP 404", ErrNoSuchPage)
)

type response = Response[int64, int64]

// iterate iterates over a list of ids with pages of two records, and returns the delivered ones.
func iterate(t *testing.T, fetch func(number, size int) (*response, error)) ([]int64, error) {
	t.Helper()
	identity := func(id int64) int64 { return id }
	it := New(Source[int64, int64]{
		Fetch:     func(_ context.Context, number, size int) (*response, error) { return fetch(number, size) },
		ID:        identity,
		OmittedID: identity,
	}, 2, 0)
	var delivered []int64
	for it.More() {
		page, err := it.Next(t.Context())
		require.NoError(t, err)
		delivered = append(delivered, page.List...)
	}
	return delivered, it.Err(errInconsistent)
}

// A respondFunc returns the total and the ids of a page. Requests and pages count from 1.
type respondFunc func(request, number int) (total int64, ids []int64)

// collect iterates over a list of ids. A negative id stands for a record that is left out, and 0 for one that
// is left out without an id.
func collect(t *testing.T, respond respondFunc) (delivered []int64, err error) {
	t.Helper()
	requests := 0
	return iterate(t, func(number, _ int) (*response, error) {
		requests++
		require.Less(t, requests, 100, "iteration does not end")
		total, ids := respond(requests, number)
		page := &response{PageNum: number, PageSize: 2, Total: total, Pages: int(total+1) / 2, List: []int64{}}
		for _, id := range ids {
			if id > 0 {
				page.List = append(page.List, id)
			} else {
				page.Omitted = append(page.Omitted, -id)
			}
		}
		if len(page.Omitted) > 0 {
			return page, errBad
		}
		return page, nil
	})
}

// static returns the pages of a list that does not change, for collect.
func static(total int64, pages ...[]int64) respondFunc {
	return func(_, number int) (int64, []int64) {
		if number > len(pages) {
			return total, nil
		}
		return total, pages[number-1]
	}
}

func TestRecordThatIsLeftOutCountsOnce(t *testing.T) {
	const bad = "msgpush: page 1: a record cannot be decoded"
	for _, tt := range []struct {
		name      string
		respond   respondFunc
		delivered []int64
		err       string
	}{
		{"nothing is missing", static(4, []int64{1, -2}, []int64{3, 4}), []int64{1, 3, 4}, bad},
		{"no id", static(4, []int64{1, 0}, []int64{3, 4}), []int64{1, 3, 4}, bad},
		{
			"on two pages, in place of another record",
			static(4, []int64{1, -2}, []int64{-2, 4}), []int64{1, 4},
			bad + "; page 2: inconsistent list: 3 of 4 records came",
		},
		{
			"no id, and a record is missing: the second pass counts anew",
			static(4, []int64{1, 0}, []int64{1, 4}), []int64{1, 4},
			bad + "; page 2: inconsistent list: 3 of 4 records came",
		},
		{
			"left out, and delivered in the second pass",
			func(request, _ int) (int64, []int64) {
				pages := [][]int64{{1, -2}, {1, 3}, nil, {1, 2}, {1, 3}, nil} // of the six requests
				return 4, pages[request-1]
			},
			[]int64{1, 3, 2},
			bad + "; page 2: inconsistent list: 3 of 4 records came",
		},
		{"page of which no record fits, in the middle", static(6, []int64{1, 2}, []int64{-3, -4}, []int64{5, 6}),
			[]int64{1, 2, 5, 6}, "msgpush: page 2: a record cannot be decoded"},
		{
			"pages of which no record fits",
			static(8, []int64{-1, -2}, []int64{-3, -4}, []int64{-5, -6}, []int64{-7, -8}), nil, bad,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			delivered, err := collect(t, tt.respond)
			assert.Equal(t, tt.delivered, delivered)
			assert.EqualError(t, err, tt.err)
		})
	}
}

func TestPagesOfRecordsWithoutIDDoNotEndTheList(t *testing.T) {
	zeros := []int64{0, 0}
	delivered, err := collect(t, static(10, []int64{1, 2}, zeros, zeros, zeros, []int64{9, 10}))
	assert.Equal(t, []int64{1, 2, 9, 10}, delivered)
	assert.EqualError(t, err, "msgpush: page 2: a record cannot be decoded")
}

// Without numbers, too, a page of such records is not the end, unless the service repeats it without end.
func TestPageOfRecordsWithoutIDDoesNotEndAListWithoutNumbers(t *testing.T) {
	for name, id := range map[string]func(int64) int64{"ids": func(id int64) int64 { return id }, "no ids": nil} {
		t.Run(name, func(t *testing.T) {
			it := New(Source[int64, int64]{
				Fetch: func(_ context.Context, number, _ int) (*response, error) {
					switch number {
					case 2:
						return &response{Omitted: []int64{0, 0}}, errBad
					case 1, 3:
						return &response{List: []int64{int64(number), int64(number + 1)}}, nil
					}
					return &response{List: []int64{}}, nil
				},
				ID:        id,
				OmittedID: func(id int64) int64 { return id },
			}, 2, 0)
			var delivered []int64
			for it.More() {
				page, err := it.Next(t.Context())
				require.NoError(t, err)
				delivered = append(delivered, page.List...)
			}
			assert.Equal(t, numbers(1, 4), delivered)
			assert.EqualError(t, it.Err(errInconsistent), "msgpush: page 2: a record cannot be decoded")
		})
	}
}

func TestInsertedPageDoesNotEndAListWithoutNumbers(t *testing.T) {
	list, requests := numbers(1, 40), 0
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		requests++
		if requests == 4 { // the page has the records of the one before
			list = append(numbers(41, 42), list...)
		}
		page, err := pageOf(list, min(number, (len(list)+1)/size), size)
		page.Total, page.Pages, page.PageNum = 0, 0, 0
		return page, err
	})
	assert.NoError(t, err)
	assert.Equal(t, numbers(1, 40), delivered)
}

func TestIterationOverAPageThatComesAgainAndAgainEnds(t *testing.T) {
	for name, id := range map[string]int64{"without an id": 0, "with an id": 7} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			it := New(Source[int64, int64]{
				Fetch: func(context.Context, int, int) (*response, error) {
					requests++
					require.Less(t, requests, 1000, "iteration does not end")
					return &response{Omitted: []int64{id}}, errBad
				},
				OmittedID: func(id int64) int64 { return id },
			}, 2, 0)
			for it.More() {
				_, err := it.Next(t.Context())
				require.NoError(t, err)
			}
			assert.LessOrEqual(t, requests, 200)
			assert.ErrorContains(t, it.Err(errInconsistent), "others may be missing, since too many pages had no new record")
		})
	}
}

// Record 3 ties with record 2, and is on no page. Meanwhile, record 5 is inserted at the tail.
func TestTwoEmptyPagesInARowDoNotEndTheList(t *testing.T) {
	var pages [][]int64
	for id := int64(1); id <= 19; id += 2 {
		pages = append(pages, []int64{id, id + 1}, []int64{}, []int64{}) // the service hides the records of two pages
	}
	delivered, err := collect(t, static(60, pages...))
	assert.Len(t, delivered, 20)
	assert.ErrorIs(t, err, errInconsistent)
}

func TestInsertedRecordHidesNoMissingOne(t *testing.T) {
	delivered, err := collect(t, func(request, number int) (int64, []int64) {
		first := map[int][]int64{1: {1, 2}, 2: {2, 4}, 3: {5}}
		second := map[int][]int64{1: {1, 3}, 2: {2, 4}, 3: {5}}
		switch {
		case request <= 2:
			return 4, first[number]
		case request == 3:
			return 5, first[number]
		default:
			return 5, second[number]
		}
	})
	assert.NoError(t, err)
	assert.Equal(t, []int64{1, 2, 4, 5, 3}, delivered)
}

// pageOf returns the response for a page of a list, or errNoPage.
func pageOf(list []int64, number, size int) (*response, error) {
	from, to := min((number-1)*size, len(list)), min(number*size, len(list))
	if from == to {
		return nil, errNoPage
	}
	return &response{PageNum: number, PageSize: size, Total: int64(len(list)), List: list[from:to]}, nil
}

// Records 1 to 4 are deleted before the third response. Page 3 does not exist any more.
func TestServiceThatRespondsWithItsLastPageInsteadHidesNoRecord(t *testing.T) {
	requests := 0
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		requests++
		list := numbers(1, 8)
		if requests >= 3 {
			list = numbers(5, 8)
		}
		pages := len(list) / size
		page, err := pageOf(list, min(number, pages), size)
		page.Pages = pages
		return page, err
	})
	require.NoError(t, err)
	assert.ElementsMatch(t, numbers(1, 8), delivered)
}

// The total is at most 6. Before the fifth response, two records are inserted, so that page 5 repeats page 4.
func TestInsertionsBehindATotalThatIsACapAreNotTheEnd(t *testing.T) {
	requests := 0
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		requests++
		list := numbers(1, 16)
		if requests >= 5 {
			list = append([]int64{101, 102}, list...)
		}
		page, err := pageOf(list, number, size)
		if page != nil {
			page.Total = 6
		}
		return page, err
	})
	require.NoError(t, err)
	assert.Equal(t, numbers(1, 16), delivered)
}

// A tie hides record 1999 from the first pass. The second one has 2,000 pages, and hardly any of them a
// new record.
func TestSecondPassReadsALongListToItsEnd(t *testing.T) {
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		page, err := pageOf(numbers(1, 2000), number, size)
		if size == 2 && number == 1000 {
			page.List = []int64{1998, 2000}
		}
		return page, err
	})
	require.NoError(t, err)
	assert.Len(t, delivered, 2000)
	assert.Contains(t, delivered, int64(1999))
}

func TestErrorResponseForAPageThatDoesNotExistStandsForAnEmptyPage(t *testing.T) {
	for name, tt := range map[string]struct {
		total int64
		err   string
	}{
		"behind the end":      {4, ""},
		"the last page":       {5, "msgpush: page 5: HTTP 404; page 3: inconsistent list: 4 of 5 records came"},
		"total below the end": {2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			delivered, err := iterate(t, func(number, size int) (*response, error) {
				page, err := pageOf([]int64{1, 2, 3, 4}, number, size)
				if page != nil {
					page.Total = tt.total
				}
				return page, err
			})
			assert.Equal(t, []int64{1, 2, 3, 4}, delivered)
			if tt.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, tt.err)
			}
		})
	}
}

func TestErrorOfAMomentForTheLastPageNeedsNoSecondPass(t *testing.T) {
	requests := 0
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		requests++
		if requests == 2 {
			return nil, errNoPage
		}
		return pageOf([]int64{1, 2, 3}, number, size)
	})
	assert.NoError(t, err)
	assert.Equal(t, []int64{1, 2, 3}, delivered)
	assert.Equal(t, 3, requests)
}

// The error response for a page that has vanished shows no total. In pages of two records, some that were in
// the list throughout have moved to pages that were read already.
func TestRecordsThatMovedBeforeTheirPageVanishedAreDelivered(t *testing.T) {
	for name, deletions := range map[string][]int{ // before each request, how many records at the start of the list
		"the last page":            {0, 1, 0, 0, 1},
		"again, at another page":   {0, 1, 0, 0, 1, 0, 0, 1},
		"again, before the retry":  {0, 0, 5, 0, 4},
		"the last page, two times": {0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 1},
		"most of the list":         {0, 0, 8},
		"most of the rest, twice":  {0, 0, 4, 0, 0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			list := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
			request := 0
			delivered, err := iterate(t, func(number, size int) (*response, error) {
				if request < len(deletions) {
					list = list[deletions[request]:]
				}
				request++
				return pageOf(list, number, size)
			})
			assert.NoError(t, err)
			assert.Subset(t, delivered, list)
		})
	}
}

// Record 1 is deleted after page 1. The total counts a record that is not shown, so that as many records come
// as it says: only the last page, which does not exist, shows that one may be missing.
func TestPromisedPageThatDoesNotExistIsAnError(t *testing.T) {
	list := []int64{1, 2, 3, 4, 5}
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		page, err := pageOf(list, number, size)
		if page != nil {
			page.Total = 5
		}
		list = []int64{2, 3, 4, 5}
		return page, err
	})
	assert.EqualError(t, err, "msgpush: page 5: HTTP 404; page 3: inconsistent list: 5 records came, "+
		"but others may be missing, since a page does not exist that the total promises")
	assert.ElementsMatch(t, []int64{1, 2, 3, 4, 5}, delivered)
}

// A tie hides record 4 from the first pass. In the second one, with pages of one record, record 9 is
// inserted.
func TestRecordThatIsInsertedInTheSecondPassHidesNoMissingOne(t *testing.T) {
	delivered, err := collect(t, func(request, number int) (int64, []int64) {
		switch {
		case request == 1:
			return 4, []int64{1, 2}
		case request == 2:
			return 4, []int64{2, 3}
		case request == 3 && number == 3:
			return 4, nil
		case number == 1:
			return 4, []int64{1}
		}
		list := []int64{1, 9, 2, 3, 4}
		return 5, list[min(number-1, 5):min(number, 5)]
	})
	assert.NoError(t, err)
	assert.ElementsMatch(t, []int64{1, 2, 3, 4, 9}, delivered)
}

// In the first pass, page 3 is behind the end. The second pass has pages of one record, which all exist.
func TestErrorOfTheFirstPassIsNoErrorOfTheSecond(t *testing.T) {
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		ids := []int64{1, 2, 1, 3} // record 4 is on no page
		if size == 1 {
			ids = []int64{1, 2, 3, 1}
		}
		page, err := pageOf(ids, number, size)
		if page != nil {
			page.Total = 4
		}
		return page, err
	})
	assert.EqualError(t, err, "msgpush: page 2: inconsistent list: 3 of 4 records came")
	assert.Equal(t, []int64{1, 2, 3}, delivered)
}

func TestListThatIsEmptiedIsInconsistent(t *testing.T) {
	requests := 0
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		requests++
		if requests == 1 {
			return pageOf(numbers(1, 6), number, size)
		}
		return &response{PageNum: number, PageSize: size}, nil
	})
	assert.ErrorContains(t, err, "inconsistent list: 2 of 6 records came")
	assert.Equal(t, numbers(1, 2), delivered)
}

// The total is a cap of 4 of 10 records. An error code for a moment is no end of the list.
func TestErrorOfAMomentBehindATotalThatIsACapIsNotTheEnd(t *testing.T) {
	requests := map[int]int{}
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		requests[number]++
		if number == 4 && requests[number] == 1 {
			return nil, errNoPage
		}
		page, err := pageOf(numbers(1, 10), number, size)
		if page != nil {
			page.Total = 4
		}
		return page, err
	})
	assert.NoError(t, err)
	assert.Equal(t, numbers(1, 10), delivered)
	assert.Equal(t, map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 5: 1, 6: 2}, requests)
}

func numbers(first, last int64) (ids []int64) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

// A service that sends the same page again and again makes no progress, although each page leaves out a
// record.
func TestRepeatedPageWithOmittedRecordEndsIteration(t *testing.T) {
	for _, id := range []int64{0, -2} {
		for _, total := range []int64{0, 1000} {
			requests := 0
			_, err := collect(t, func(request, _ int) (int64, []int64) {
				requests = request
				return total, []int64{1, id}
			})
			assert.ErrorIs(t, err, errBad)
			assert.LessOrEqual(t, requests, 10)
		}
	}
}

// The service may have failed, or most of the list was deleted. Without numbers, no response shows whether
// a page should exist.
func TestErrorOfAPageThatIsNotTheLastOneIsReturned(t *testing.T) {
	for _, total := range []int64{0, 20} {
		it := New(Source[int64, int64]{
			Fetch: func(_ context.Context, number, size int) (*response, error) {
				if number == 3 {
					return nil, errNoPage
				}
				page, err := pageOf(numbers(1, 20), number, size)
				page.Total = total
				return page, err
			},
			ID: func(id int64) int64 { return id },
		}, 2, 0)
		var err error
		for range 4 { // with a total, the third one requests page 1 in place of page 3
			if err == nil {
				_, err = it.Next(t.Context())
			}
		}
		assert.EqualError(t, err, "msgpush: page 3: HTTP 404")
	}
}

// Without ids, page 1 would be delivered twice.
func TestPageThatDoesNotExistRepeatsNoRecordWithoutIDs(t *testing.T) {
	it := New(Source[int64, int64]{Fetch: func(_ context.Context, number, size int) (*response, error) {
		if number == 3 {
			return nil, errNoPage
		}
		return pageOf(numbers(1, 20), number, size)
	}}, 2, 0)
	var delivered []int64
	var err error
	for err == nil {
		var page *response
		page, err = it.Next(t.Context())
		if page != nil {
			delivered = append(delivered, page.List...)
		}
	}
	assert.EqualError(t, err, "msgpush: page 3: HTTP 404")
	assert.Equal(t, numbers(1, 4), delivered)
}

// The last record is deleted before its page is requested.
func TestListThatLosesItsLastPageIsComplete(t *testing.T) {
	list, requests := []int64{1, 2, 3, 4, 5}, 0
	delivered, err := iterate(t, func(number, size int) (*response, error) {
		requests++
		if requests == 3 {
			list = []int64{1, 2, 3, 4}
		}
		return pageOf(list, number, size)
	})
	assert.NoError(t, err)
	assert.Equal(t, numbers(1, 4), delivered)
}

// The page is requested once more after an error that may mean that it does not exist.
func TestAnotherErrorOfTheLastPageIsReturned(t *testing.T) {
	errDown, requests := errors.New("HTTP 503"), 0
	it := New(Source[int64, int64]{
		Fetch: func(_ context.Context, number, size int) (*response, error) {
			requests++
			switch requests {
			case 2:
				return nil, errNoPage
			case 3:
				return nil, errDown
			}
			return pageOf(numbers(1, 3), number, size)
		},
		ID: func(id int64) int64 { return id },
	}, 2, 0)
	_, err := it.Next(t.Context())
	require.NoError(t, err)
	_, err = it.Next(t.Context())
	assert.EqualError(t, err, "msgpush: page 2: HTTP 503")
}

func TestPageWithANumberIsUsedAlthoughItComesWithAnError(t *testing.T) {
	for name, page := range map[string]response{
		"page number":     {PageNum: 1},
		"page size":       {PageSize: 2},
		"total":           {Total: 1},
		"number of pages": {Pages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			source := Source[int64, int64]{
				Fetch: func(context.Context, int, int) (*response, error) { return &page, errBad },
			}
			got, err := source.Page(t.Context(), 1, 2)
			assert.Same(t, &page, got)
			assert.Equal(t, errBad, err)
		})
	}
}
