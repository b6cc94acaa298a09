package msgpush_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestAllDeliversEveryRecordInOrder(t *testing.T) {
	for _, list := range staticLists() {
		requests := list.pages()
		isLastPageFull := list.records > 0 && list.records%list.pageSize == 0
		if isLastPageFull {
			requests++ // the page behind it
		}
		list.assertDelivered(t, fixtures.Identity, requests)
	}
}

func TestAllWithoutIDsRequestsNoPageBehindTheLast(t *testing.T) {
	for _, list := range staticLists() {
		list.assertDelivered(t, nil, list.pages())
	}
}

// A staticList is a list that does not change, and how a pager reads it.
type staticList struct{ records, pageSize, prefetch int }

func staticLists() (lists []staticList) {
	for _, records := range []int{0, 1, 9, 10, 11, 20, 95} {
		for _, size := range []int{1, 7, 10, 100} {
			for _, prefetch := range []int{0, 1, 3, 16} {
				lists = append(lists, staticList{records, size, prefetch})
			}
		}
	}
	return lists
}

// pages returns the number of pages of the list. An empty list has one.
func (l staticList) pages() int { return max(1, (l.records+l.pageSize-1)/l.pageSize) }

// assertDelivered checks that an iteration delivers the list with a number of requests.
func (l staticList) assertDelivered(t *testing.T, id func(int64) int64, requests int) {
	t.Helper()
	var log fixtures.RequestLog
	want := fixtures.Numbers(l.records)
	pager := fixtures.PagerOf(log.Record(static(want)), id, l.pageSize, l.prefetch)
	got, err := fixtures.Collect(pager.All(t.Context()))
	require.NoError(t, err, "%+v", l)
	require.Equal(t, want, append([]int64{}, got...), "%+v", l)
	require.Len(t, log.Pages, requests, "%+v", l)
}

func TestIteratorIsReusableAndSafeForConcurrentUse(t *testing.T) {
	records := fixtures.PagerOf(static(fixtures.Numbers(95)), fixtures.Identity, 10, 3).All(t.Context())
	for range records {
		break
	}
	fixtures.Concurrently(8, func() {
		for range 2 {
			got, err := fixtures.Collect(records)
			assert.NoError(t, err)
			assert.Equal(t, fixtures.Numbers(95), got)
		}
	})
}

func TestYieldsErrorAfterFetchedRecords(t *testing.T) {
	cut := errors.New("msgpush: connection reset")
	for _, prefetch := range []int{0, 1, 8} {
		synctest.Test(t, func(t *testing.T) {
			f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				if r.Current == 4 {
					return nil, cut
				}
				return delayed(static(fixtures.Numbers(95)), time.Second)(ctx, r)
			}
			var got []int64
			var errs []error
			pager := fixtures.PagerOf(f, fixtures.Identity, 10, prefetch)
			for id, err := range pager.All(t.Context()) {
				if err != nil {
					assert.Zero(t, id)
					errs = append(errs, err)
					continue // the error ends the iteration
				}
				got = append(got, id)
			}
			assert.Equal(t, fixtures.Numbers(30), got)
			require.Len(t, errs, 1)
			assert.ErrorIs(t, errs[0], cut)
			assert.EqualError(t, errs[0], "msgpush: page 4: connection reset")
		})
	}
}

func TestPageWithAnErrorIsDeliveredAndItsErrorComesLast(t *testing.T) {
	partial := errors.New("msgpush: record 7 cannot be decoded")
	tests := []struct {
		name      string
		fetch     fetchOf45
		delivered int
		want      []string
	}{
		{
			name: "three pages, two different errors",
			fetch: func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error) {
				if r.Current == 5 {
					return p, errors.New("msgpush: record 9 cannot be decoded")
				}
				return p, errorAt(r, partial, 2, 3)
			},
			delivered: 45,
			want:      []string{"page 2: record 7", "page 5: record 9"},
		},
		{
			name: "a record is missing",
			fetch: func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error) {
				p.List = slices.DeleteFunc(p.List, func(id int64) bool { return id == 7 })
				return p, errorAt(r, partial, 1)
			},
			delivered: 44,
			want:      []string{"page 1: record 7", "inconsistent list: 44 of 45 records came"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.fetch.assertDelivers(t, tt.delivered, partial, tt.want...)
		})
	}
}

// The text has both errors, but the error matches only the one that stopped the iteration.
func TestPageThatStopsAnIterationIsItsError(t *testing.T) {
	partial, reset := errors.New("msgpush: record 7 cannot be decoded"), errors.New("msgpush: connection reset")
	fetch := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 3 {
			return nil, reset
		}
		return fixtures.PageOf(fixtures.Numbers(45), r), errorAt(r, partial, 1)
	}
	for _, prefetch := range []int{0, 8} {
		got, err := fixtures.Collect(fixtures.PagerOf(fetch, fixtures.Identity, 10, prefetch).All(t.Context()))
		assert.Len(t, got, 20, "prefetch %d", prefetch)
		assert.EqualError(t, err, "msgpush: page 3: connection reset; page 1: record 7 cannot be decoded")
		assert.ErrorIs(t, err, reset)
		assert.NotErrorIs(t, err, partial)
	}
}

// A fetchOf45 changes the response for a page of a list of 45 records.
type fetchOf45 func(r msgpush.PageRequest, p *fixtures.Page) (*fixtures.Page, error)

// assertDelivers iterates over the list in pages of ten records. It checks the number of records, and that
// the one error wraps partial and has each text once.
func (fetch fetchOf45) assertDelivers(t *testing.T, records int, partial error, texts ...string) {
	t.Helper()
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return fetch(r, fixtures.PageOf(fixtures.Numbers(45), r))
	}
	for _, prefetch := range []int{0, 8} {
		got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, prefetch).All(t.Context()))
		assert.Len(t, got, records, "prefetch %d", prefetch)
		assert.ErrorIs(t, err, partial)
		for _, text := range texts {
			assert.Equal(t, 1, strings.Count(err.Error(), text), "%q in %q", text, err)
		}
	}
}

// errorAt returns err for the pages, and nil for others.
func errorAt(r msgpush.PageRequest, err error, pages ...int) error {
	if slices.Contains(pages, r.Current) {
		return err
	}
	return nil
}

func TestKeepsTenErrorsOfPages(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return fixtures.PageOf(fixtures.Numbers(95), r), fmt.Errorf("error of page <%d>", r.Current)
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 5, 0).All(t.Context()))
	assert.Len(t, got, 95)
	assert.ErrorContains(t, err, "error of page <10>")
	assert.NotContains(t, err.Error(), "error of page <11>")
}

func TestErrorResponseBehindTheLastPageEndsTheList(t *testing.T) {
	for name, behind := range map[string]*msgpush.APIError{
		"400":                  {HTTPStatus: 400},
		"404":                  {HTTPStatus: 404},
		"410":                  {HTTPStatus: 410},
		"416":                  {HTTPStatus: 416},
		"422":                  {HTTPStatus: 422},
		"501":                  {HTTPStatus: 501},
		"500 with an envelope": {HTTPStatus: 500, Code: 7},
		"code 500":             {HTTPStatus: 200, Code: 500},
		"code 401, which the client does not interpret": {HTTPStatus: 200, Code: 401},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range iterateBefore(t, behind) {
				assert.NoError(t, err)
			}
		})
	}
}

// Backends in Go send null for a list without records.
func TestSuccessWithoutListBehindTheLastPageEndsTheList(t *testing.T) {
	for _, data := range []string{`{"total":2,"pages":1,"list":null}`, `{"total":2,"pages":1}`, `null`} {
		t.Run(data, func(t *testing.T) {
			transport := func(r *http.Request) (*http.Response, error) {
				var page msgpush.PageRequest
				require.NoError(t, json.NewDecoder(r.Body).Decode(&page))
				if page.Current > 1 {
					return fixtures.Respond(200, fixtures.SuccessOf(data))(r)
				}
				return fixtures.Respond(200, fixtures.SuccessOf(`{"total":2,"pages":1,"list":[{"id":1},{"id":2}]}`))(r)
			}
			pager := fixtures.NewClient(t, fixtures.RoundTripFunc(transport)).MPPager()
			pager.PageSize = 2
			got, err := fixtures.Collect(pager.All(t.Context()))
			assert.NoError(t, err)
			assert.Len(t, got, 2)
		})
	}
}

func TestAnotherErrorBehindTheLastPageIsReturned(t *testing.T) {
	for name, behind := range map[string]error{
		"code of WithRejectedKeyCodes":          &msgpush.APIError{HTTPStatus: 200, Code: 7, KeyRejected: true},
		"code of WithRetryableCodes":            &msgpush.APIError{HTTPStatus: 200, Code: 7, Retryable: true},
		"500 with a code of WithRetryableCodes": &msgpush.APIError{HTTPStatus: 500, Code: 7, Retryable: true},
		"500":                                   &msgpush.APIError{HTTPStatus: 500},
		"302":                                   &msgpush.APIError{HTTPStatus: 302},
		"401":                                   &msgpush.APIError{HTTPStatus: 401},
		"403":                                   &msgpush.APIError{HTTPStatus: 403},
		"407":                                   &msgpush.APIError{HTTPStatus: 407},
		"429":                                   &msgpush.APIError{HTTPStatus: 429},
		"503":                                   &msgpush.APIError{HTTPStatus: 503},
		"undecodable":                           &msgpush.DecodeError{Operation: "x", Err: errors.New("no envelope")},
		"connection error":                      errors.New("msgpush: connection reset"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range iterateBefore(t, behind) {
				assert.ErrorIs(t, err, behind)
				assert.ErrorContains(t, err, "page 5")
			}
		})
	}
}

// iterateBefore iterates over four pages, with and without prefetching. Each page behind them fails with
// behind. The reported total is the length of the list, or a cap. The errors of the iterations are
// returned.
func iterateBefore(t *testing.T, behind error) (errs []error) {
	t.Helper()
	numbers := fixtures.Numbers(40)
	for _, tt := range []struct {
		total    int64
		prefetch int
	}{
		{total: 40, prefetch: 0},
		{total: 40, prefetch: 8},
		{total: 20, prefetch: 0},
		{total: 20, prefetch: 8},
	} {
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			p := fixtures.PageOf(numbers, r)
			if len(p.List) == 0 {
				return nil, behind
			}
			p.Total, p.Pages = tt.total, int(tt.total/10)
			return p, nil
		}
		got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, tt.prefetch).All(t.Context()))
		assert.Equal(t, numbers, got, "%+v", tt)
		errs = append(errs, err)
	}
	return errs
}

// The total is capped, so that records may stand behind it. A service that is busy for a moment hides none.
func TestErrorResponseOfAMomentBehindTheLastPageHidesNoRecord(t *testing.T) {
	for failing := 3; failing <= 5; failing++ {
		hasFailed := false
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			if r.Current == failing && !hasFailed {
				hasFailed = true
				return nil, &msgpush.APIError{HTTPStatus: 200, Code: 1001}
			}
			p := fixtures.PageOf(fixtures.Numbers(45), r)
			p.Total, p.Pages = 20, 2
			return p, nil
		}
		got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, 0).All(t.Context()))
		assert.NoError(t, err, failing)
		assert.Equal(t, fixtures.Numbers(45), got, failing)
	}
}

// The total promises the page, so its error is one of the iteration.
func TestErrorResponseBeforeTheLastPageIsAnError(t *testing.T) {
	notFound := &msgpush.APIError{HTTPStatus: 404}
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 3 {
			return nil, notFound
		}
		return fixtures.PageOf(fixtures.Numbers(45), r), nil
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, 0).All(t.Context()))
	assert.Len(t, got, 20)
	assert.ErrorIs(t, err, notFound)
	assert.ErrorContains(t, err, "page 3")
}

func TestSecondPassUsesTheFirstPageSizeIfAnotherOneIsRejected(t *testing.T) {
	var log fixtures.RequestLog
	rejected := &msgpush.APIError{HTTPStatus: 400}
	isEmpty := true // page 2, once
	f := log.Record(func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.PageSize != 20 {
			return nil, rejected
		}
		p := fixtures.PageOf(fixtures.Numbers(55), r)
		if r.Current == 2 && isEmpty {
			isEmpty, p.List = false, nil
		}
		return p, nil
	})
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
	require.NoError(t, err)
	assert.ElementsMatch(t, fixtures.Numbers(55), got)
	assert.Equal(t, []int{1, 2, 3, 1, 1, 2}, log.Pages, "the first one of the second pass is rejected")
}

// Call returns the zero Page together with its error.
func TestZeroPageOfAFailedCallIsNoPage(t *testing.T) {
	failed := &msgpush.APIError{HTTPStatus: 403}
	calls := 0
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		calls++
		if r.Current > 1 {
			return &fixtures.Page{}, failed
		}
		return fixtures.PageOf(fixtures.Numbers(55), r), nil
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 20, 0).All(t.Context()))
	assert.Len(t, got, 20)
	assert.ErrorIs(t, err, failed)
	assert.ErrorContains(t, err, "page 2")
	assert.Equal(t, 2, calls)
}

func TestContextEndsIteration(t *testing.T) {
	for _, prefetch := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			start := time.Now()
			f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
				if r.Current == 3 {
					return delayed(static(nil), time.Hour)(ctx, r)
				}
				return delayed(static(fixtures.Numbers(95)), time.Second)(ctx, r)
			}
			got, err := fixtures.Collect(
				fixtures.PagerOf(f, fixtures.Identity, 10, prefetch).All(ctx))
			assert.Equal(t, fixtures.Numbers(20), got)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "page 3")
			assert.Equal(t, 2500*time.Millisecond, time.Since(start))
		})
	}
	t.Run("between two pages", func(t *testing.T) {
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			return fixtures.PageOf(fixtures.Numbers(95), r), nil
		}
		got := 0
		for _, err := range fixtures.PagerOf(f, fixtures.Identity, 10, 0).All(ctx) {
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				assert.ErrorIs(t, err, cause)
				break
			}
			got++
			cancel(cause)
		}
		assert.Equal(t, 10, got, "the records of the first page")
	})
}

func TestInvalidIterationYieldsOneError(t *testing.T) {
	unused := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
		t.Error("a request was sent")
		return nil, nil
	}
	noPage := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) { return nil, nil }
	ctx := t.Context()
	var none context.Context
	tests := []struct {
		want    string
		records iter.Seq2[int64, error]
	}{
		{"the field PageSize is negative: -1", fixtures.PagerOf(unused, fixtures.Identity, -1, 2).All(ctx)},
		{"the field Prefetch is negative: -1", fixtures.PagerOf(unused, fixtures.Identity, 1, -1).All(ctx)},
		{"Fetch is nil", fixtures.Pager{ID: fixtures.Identity}.All(ctx)},
		{"the context is nil", fixtures.PagerOf(unused, fixtures.Identity, 1, 0).All(none)},
		{
			"page 1: the Fetch function returned neither a page nor an error",
			fixtures.PagerOf(noPage, nil, 1, 0).All(ctx),
		},
		{"not made by NewClient", func(yield func(int64, error) bool) {
			_, err := fixtures.Collect((*msgpush.Client)(nil).MPPager().All(ctx))
			yield(0, err)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) { assertOnlyError(t, tt.want, tt.records) })
	}
}

func TestPagesYieldsOnlyNewRecords(t *testing.T) {
	responses := []*fixtures.Page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{3, 4, 5}},
		{PageNum: 3, PageSize: 3, Total: 10, Pages: 4, List: []int64{4, 5, 3}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return responses[r.Current-1], nil
	}
	got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 3, 0).Pages(t.Context()))
	require.NoError(t, err)
	assert.Equal(t, []*fixtures.Page{
		{PageNum: 1, PageSize: 3, Total: 7, Pages: 3, List: []int64{1, 2, 3}},
		{PageNum: 2, PageSize: 3, Total: 8, Pages: 3, List: []int64{4, 5}},
		{PageNum: 4, PageSize: 3, Total: 10, Pages: 4, List: []int64{6, 7}},
	}, got)
	assert.Equal(t, []int64{3, 4, 5}, responses[1].List, "the fetched page must not change")
}

func TestPagesYieldsEmptyFirstPage(t *testing.T) {
	tests := []struct {
		name      string
		responses []*fixtures.Page
		want      []*fixtures.Page
		err       error
	}{
		{
			name:      "empty list",
			responses: []*fixtures.Page{{PageNum: 1, PageSize: 3}},
			want:      []*fixtures.Page{{PageNum: 1, PageSize: 3}},
		},
		{
			name:      "empty list with one page",
			responses: []*fixtures.Page{{PageNum: 1, PageSize: 3, Pages: 1}},
			want:      []*fixtures.Page{{PageNum: 1, PageSize: 3, Pages: 1}},
		},
		{
			name:      "records are missing",
			responses: slices.Repeat([]*fixtures.Page{{Total: 2, Pages: 1}}, 4),
			err:       msgpush.ErrInconsistentList,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			f := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
				requests++
				return tt.responses[requests-1], nil
			}
			got, err := fixtures.Collect(
				fixtures.PagerOf(f, fixtures.Identity, 3, 0).Pages(t.Context()))
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, got)
			assert.Len(t, tt.responses, requests)
		})
	}
}

func TestDeliversEachIDOnce(t *testing.T) {
	ids := []int64{0, -1, 1, -63, -64, -65, 63, 64, 65, math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1}
	f := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
		return &fixtures.Page{List: slices.Clone(ids)}, nil // page 2 has no new record, which ends the iteration
	}
	got, err := fixtures.Collect(
		fixtures.PagerOf(f, fixtures.Identity, len(ids), 0).All(t.Context()))
	require.NoError(t, err)
	assert.Equal(t, ids, got)
}

func TestSeveralRecordsWithoutAnIDAreReported(t *testing.T) {
	for name, total := range map[string]int64{"with a total": 3, "without numbers": 0} {
		t.Run(name, func(t *testing.T) {
			f := func(context.Context, msgpush.PageRequest) (*fixtures.Page, error) {
				return &fixtures.Page{Total: total, List: []int64{1, 0, 0}}, nil
			}
			got, err := fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 3, 0).All(t.Context()))
			assert.Equal(t, []int64{1, 0}, got)
			assert.ErrorContains(t, err, "msgpush: page 1: records left out: 2 records have the id 0, and at most one of them")
			assert.ErrorIs(t, err, msgpush.ErrOmitted)
		})
	}
}

func TestPageOfWhichNoRecordFitsIsYielded(t *testing.T) {
	bad := msgpush.OmittedRecord{ID: 3, JSON: []byte(`{"id":3}`), Err: errors.New("bad")}
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 1 {
			return &fixtures.Page{Total: 3, List: []int64{1, 2}}, nil
		}
		return &fixtures.Page{Total: 3, List: []int64{}, Omitted: []msgpush.OmittedRecord{bad}}, nil
	}
	var omitted []msgpush.OmittedRecord
	for page, err := range fixtures.PagerOf(f, fixtures.Identity, 2, 0).Pages(t.Context()) {
		require.NoError(t, err)
		omitted = append(omitted, page.Omitted...)
	}
	assert.Equal(t, []msgpush.OmittedRecord{bad}, omitted)
}

func TestSendsNoMoreRequestsThanNeeded(t *testing.T) {
	tests := []struct{ prefetch, take, requests int }{
		{prefetch: 0, take: 0, requests: 1},
		{prefetch: 0, take: 1, requests: 1},
		{prefetch: 0, take: 10, requests: 1},
		{prefetch: 0, take: 11, requests: 2},
		{prefetch: 0, take: 20, requests: 2},
		{prefetch: 0, take: 21, requests: 3},
		{prefetch: 0, take: 95, requests: 10},
		{prefetch: 1, take: 0, requests: 2},
		{prefetch: 1, take: 1, requests: 2},
		{prefetch: 1, take: 10, requests: 2},
		{prefetch: 1, take: 11, requests: 3},
		{prefetch: 1, take: 95, requests: 10},
		{prefetch: 3, take: 0, requests: 4},
		{prefetch: 3, take: 11, requests: 5},
		{prefetch: 3, take: 61, requests: 10},
		{prefetch: 3, take: 95, requests: 10},
		{prefetch: 50, take: 0, requests: 10},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d records, prefetch %d", tt.take, tt.prefetch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log fixtures.RequestLog
				fetch := log.Record(static(fixtures.Numbers(95)))
				records := fixtures.PagerOf(fetch, fixtures.Identity, 10, tt.prefetch).All(t.Context())
				assert.Empty(t, log.Pages, "before the range statement")
				got := 0
				for _, err := range records {
					require.NoError(t, err)
					if got++; got >= tt.take {
						synctest.Wait()
						break
					}
				}
				assert.Len(t, log.Pages, tt.requests)
			})
		})
	}
}

func TestPrefetchIsConcurrent(t *testing.T) {
	const pages, delay = 200, 20 * time.Millisecond
	tests := []struct {
		prefetch int
		want     time.Duration
	}{
		{0, pages * delay},
		{1, pages * delay},
		{4, (1 + 50) * delay},
		{8, (1 + 25) * delay},
		{500, 2 * delay},
	}
	numbers := fixtures.Numbers(pages*10 - 1) // the last page is not full, so none is requested behind it
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			pager := fixtures.PagerOf(delayed(static(numbers), delay), fixtures.Identity, 10, tt.prefetch)
			got, err := fixtures.Collect(pager.All(t.Context()))
			require.NoError(t, err)
			assert.Equal(t, numbers, got)
			assert.Equal(t, tt.want, time.Since(start), "prefetch %d", tt.prefetch)
		})
	}
}

// A changingList changes while it is read, in pages of 20 records and with 20 ms a response.
type changingList struct {
	records    int     // at first
	insertions float64 // after each response
	deletions  float64 // after each response; only if there are no insertions
	calmAfter  int     // after that many delivered records, the list stays the same; 0: never
}

// A cost has the requests and the time of an iteration. If the list calms down, duration is the time from
// then on.
type cost struct {
	requests int
	duration time.Duration
}

// iterate checks that each record that stays in the list is delivered once.
func (l changingList) iterate(t *testing.T, prefetch int) (c cost) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newChangingService(l)
		start, delivered := time.Now(), map[int64]bool{}
		for id, err := range fixtures.PagerOf(s.fetch, fixtures.Identity, 20, prefetch).All(t.Context()) {
			require.NoError(t, err)
			require.False(t, delivered[id], "record %d was delivered twice", id)
			delivered[id] = true
			if len(delivered) == l.calmAfter {
				s.calmDown()
				start = time.Now()
			}
		}
		for id := range s.stable {
			require.True(t, delivered[id], "record %d was not delivered", id)
		}
		c = cost{requests: s.requests, duration: time.Since(start)}
	})
	return c
}

// A changingService serves a changingList.
type changingService struct {
	mu       sync.Mutex
	list     changingList
	rng      *rand.Rand
	ids      []int64
	last     int64          // the highest id
	stable   map[int64]bool // the ids from the beginning that were not deleted
	due      float64        // changes that are not made yet
	requests int
}

func newChangingService(l changingList) *changingService {
	s := &changingService{
		list:   l,
		rng:    rand.New(rand.NewPCG(1, 1)),
		ids:    fixtures.Numbers(l.records),
		last:   int64(l.records),
		stable: map[int64]bool{},
	}
	for _, id := range s.ids {
		s.stable[id] = true
	}
	return s
}

func (s *changingService) fetch(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	p := fixtures.PageOf(s.ids, r)
	for s.due += s.list.insertions + s.list.deletions; s.due >= 1; s.due-- {
		s.change()
	}
	return p, nil
}

// change inserts or deletes a record at a random place.
func (s *changingService) change() {
	i := s.rng.IntN(len(s.ids) + 1)
	if s.list.insertions > 0 {
		s.last++
		s.ids = slices.Insert(s.ids, i, s.last)
	} else if i < len(s.ids) {
		delete(s.stable, s.ids[i])
		s.ids = slices.Delete(s.ids, i, i+1)
	}
}

func (s *changingService) calmDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list.insertions, s.list.deletions = 0, 0
}

// repeat returns the cost of several iterations together. They differ, since concurrent requests come in any
// order.
func (l changingList) repeat(t *testing.T, times, prefetch int) (sum cost) {
	t.Helper()
	for range times {
		c := l.iterate(t, prefetch)
		sum.requests += c.requests
		sum.duration += c.duration
	}
	return sum
}

func TestPrefetchCostsLittleIfTheListChanges(t *testing.T) {
	t.Parallel()
	const times = 5
	for _, list := range []changingList{
		{records: 2000, insertions: 1},
		{records: 2000, insertions: 1. / 3},
		{records: 2000, insertions: 0.1},
		{records: 2000, deletions: 0.1},
		{records: 2000, deletions: 1. / 3},
		{records: 2000, deletions: 1},
	} {
		without := list.iterate(t, 0)
		for _, prefetch := range []int{1, 2, 4, 8} {
			t.Run(fmt.Sprintf("%+v, prefetch %d", list, prefetch), func(t *testing.T) {
				with := list.repeat(t, times, prefetch)
				assert.Less(t, with.requests, times*without.requests*2)
				assert.Less(t, with.duration, times*without.duration*12/10)
			})
		}
	}
}

func TestPrefetchSavesTimeIfTheListChangesSeldom(t *testing.T) {
	t.Parallel()
	const times = 5
	list := changingList{records: 2000, insertions: 0.1}
	without := list.iterate(t, 0)
	with := list.repeat(t, times, 8)
	assert.Less(t, with.duration, times*without.duration*6/10)
}

// One record is inserted at each response, so each prefetched page is from before the latest one.
func TestPrefetchOfAGrowingListCostsFewRequests(t *testing.T) {
	list := changingList{records: 1990, insertions: 1}
	c := list.iterate(t, 8)
	t.Log(c.requests, "requests in", c.duration)
	assert.LessOrEqual(t, c.requests, 200)
	assert.LessOrEqual(t, c.duration, 2500*time.Millisecond, "without prefetching, it takes 2 s")
}

func TestPrefetchesMoreAgainAfterTheListStopsChanging(t *testing.T) {
	for _, list := range []changingList{
		{records: 4000, insertions: 1, calmAfter: 2000},
		{records: 4000, deletions: 1, calmAfter: 2000},
	} {
		without, with := list.iterate(t, 0), list.iterate(t, 8)
		assert.Less(t, 3*with.duration, without.duration, "%+v", list)
	}
}

func TestPrefetchLimitsConcurrentRequests(t *testing.T) {
	for _, prefetch := range []int{0, 1, 4} {
		for _, deletions := range []int{0, 3} { // after the response for every fifth page; iteration steps back
			synctest.Test(t, func(t *testing.T) {
				var running, highest atomic.Int32
				var mu sync.Mutex
				ids := fixtures.Numbers(300)
				f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) { // ignores its context
					fixtures.StoreHighest(&highest, running.Add(1))
					defer running.Add(-1)
					time.Sleep(time.Duration(r.Current%7) * time.Second)
					mu.Lock()
					defer mu.Unlock()
					if r.Current%5 == 0 && len(ids) > 100 {
						ids = ids[deletions:]
					}
					return fixtures.PageOf(ids, r), nil
				}
				_, err := fixtures.Collect(
					fixtures.PagerOf(f, fixtures.Identity, 10, prefetch).All(t.Context()),
				)
				require.NoError(t, err)
				assert.Equal(t, int32(max(1, prefetch)), highest.Load())
			})
		}
	}
}

func TestPrefetchIsAtMost1000Pages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, highest atomic.Int32
		ids := fixtures.Numbers(20_000)
		f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			fixtures.StoreHighest(&highest, running.Add(1))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return fixtures.PageOf(ids, r), nil
		}
		pager := fixtures.PagerOf(f, fixtures.Identity, 10, math.MaxInt)
		got, err := fixtures.Collect(pager.All(t.Context()))
		require.NoError(t, err)
		assert.Equal(t, ids, got)
		assert.Equal(t, int32(1000), highest.Load())
	})
}

// The responses to requests from before a step back are outdated.
func TestStepBackCancelsPrefetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ids, cancelled := fixtures.Numbers(100), 0
		f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
			mu.Lock()
			beforeStepBack := len(ids) == 100
			mu.Unlock()
			if r.Current > 3 && beforeStepBack {
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				cancelled++
				return nil, ctx.Err()
			}
			if r.Current == 3 {
				synctest.Wait() // until the other pages are requested; mu is not held, since they need it
			}
			mu.Lock()
			defer mu.Unlock()
			if r.Current == 3 {
				ids = fixtures.Numbers(100)[5:]
			}
			return fixtures.PageOf(ids, r), ctx.Err()
		}
		got, err := fixtures.Collect(
			fixtures.PagerOf(f, fixtures.Identity, 10, 4).All(t.Context()))
		require.NoError(t, err)
		assert.ElementsMatch(t, fixtures.Numbers(100), got)
		assert.Equal(t, 3, cancelled, "pages 4, 5 and 6")
	})
}

func TestLeavingTheLoopCancelsPrefetches(t *testing.T) {
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("panic %t", panics), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					running.Add(1)
					defer running.Add(-1)
					if r.Current == 1 {
						return fixtures.PageOf(fixtures.Numbers(95), r), nil
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				start := time.Now()
				leave := func() {
					pager := fixtures.PagerOf(f, fixtures.Identity, 10, 4)
					for range pager.All(t.Context()) {
						synctest.Wait()
						assert.Equal(t, int32(4), running.Load())
						if panics {
							panic("loop body")
						}
						break
					}
				}
				if panics {
					assert.PanicsWithValue(t, "loop body", leave)
				} else {
					leave()
				}
				assert.Zero(t, running.Load(), "a request is still running")
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// If several requests panic, the caller gets the panic of the page with the lowest number.
func TestPanicInFetchReachesTheCaller(t *testing.T) {
	tests := []struct {
		name        string
		first, last int // pages that panic
		prefetch    int
		delivered   int
		leave       bool // at the first record
	}{
		{name: "first page", first: 1, last: 1, prefetch: 0, delivered: 0},
		{name: "first page, prefetch 4", first: 1, last: 1, prefetch: 4, delivered: 0},
		{name: "third page", first: 3, last: 3, prefetch: 0, delivered: 20},
		{name: "third page, prefetch 1", first: 3, last: 3, prefetch: 1, delivered: 20},
		{name: "third page, prefetch 4", first: 3, last: 3, prefetch: 4, delivered: 20},
		{name: "all pages but the first", first: 2, last: 10, prefetch: 8, delivered: 10},
		{name: "prefetched page that is not used", first: 4, last: 4, prefetch: 8, delivered: 1, leave: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running atomic.Int32
				f := func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
					running.Add(1)
					defer running.Add(-1)
					if r.Current > tt.last {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					if r.Current >= tt.first {
						panic(r.Current)
					}
					return fixtures.PageOf(fixtures.Numbers(95), r), nil
				}
				got := 0
				value := recovered(func() {
					pager := fixtures.PagerOf(f, fixtures.Identity, 10, tt.prefetch)
					for _, err := range pager.All(t.Context()) {
						require.NoError(t, err)
						synctest.Wait()
						if got++; tt.leave {
							break
						}
					}
				})
				assert.Equal(t, tt.delivered, got)
				assert.Zero(t, running.Load(), "a request is still running")
				err, isError := value.(error)
				if !isError { // not prefetched
					assert.Equal(t, tt.first, value)
					return
				}
				assert.True(t, strings.HasPrefix(err.Error(), fmt.Sprint(tt.first, " (panic")), "%v", err)
				assert.Contains(t, err.Error(), "pager_test.go", "the stack of Fetch")
			})
		})
	}
}

// recovered returns the value with which f panics.
func recovered(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestPanicOfAPrefetchWrapsItsError(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 2 {
			panic(http.ErrAbortHandler)
		}
		return fixtures.PageOf(fixtures.Numbers(95), r), nil
	}
	value := recovered(func() {
		_, _ = fixtures.Collect(fixtures.PagerOf(f, fixtures.Identity, 10, 1).All(t.Context()))
	})
	err, _ := value.(error)
	assert.ErrorIs(t, err, http.ErrAbortHandler)
}

func TestPrefetchThatCallsGoexitFails(t *testing.T) {
	f := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		if r.Current == 3 {
			runtime.Goexit() // as t.FailNow does
		}
		return fixtures.PageOf(fixtures.Numbers(95), r), nil
	}
	got, err := fixtures.Collect(
		fixtures.PagerOf(f, fixtures.Identity, 10, 2).All(t.Context()))
	assert.Equal(t, fixtures.Numbers(20), got)
	assert.ErrorContains(t, err, "page 3: fetch did not return")
}

// Pages with only new records are yielded without a copy, so only the ids need memory.
func TestIterationCopiesNoPage(t *testing.T) {
	const pages, size = 100, 1000
	list, fetched := fixtures.Numbers(pages*size), make([]*fixtures.Page, pages+2)
	for number := 1; number <= pages+1; number++ {
		fetched[number] = fixtures.PageOf(list, msgpush.PageRequest{Current: number, PageSize: size})
	}
	fetch := func(_ context.Context, r msgpush.PageRequest) (*fixtures.Page, error) { return fetched[r.Current], nil }
	allocs := testing.AllocsPerRun(3, func() {
		number := 0
		pager := fixtures.PagerOf(fetch, fixtures.Identity, size, 0)
		for page, err := range pager.Pages(t.Context()) {
			require.NoError(t, err)
			number++
			require.Same(t, fetched[number], page)
		}
		require.Equal(t, pages, number)
	})
	t.Log(allocs, "allocations with ids")
	assert.LessOrEqual(t, allocs, 100.0, "for the set of 100,000 ids")

	allocs = testing.AllocsPerRun(3, func() {
		for _, err := range fixtures.PagerOf(fetch, nil, size, 0).All(t.Context()) {
			require.NoError(t, err)
		}
	})
	t.Log(allocs, "allocations without ids")
	assert.LessOrEqual(t, allocs, 20.0, "%d pages", pages)
}

func TestMemoryPerRecordIsLimited(t *testing.T) {
	const n, size = 300_000, 1000
	tests := []struct {
		name string
		id   func(int64) int64
		max  float64 // bytes
	}{
		{"consecutive ids", fixtures.Identity, 1},
		{"descending negative ids", func(id int64) int64 { return -id }, 1},
		{"random ids", randomID, 48},
		{"no ids", nil, 0.5},
	}
	list := fixtures.Numbers(n)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pager := fixtures.PagerOf(static(list), tt.id, size, 0)
			before, number := inUse(), 0
			for _, err := range pager.Pages(t.Context()) {
				require.NoError(t, err)
				if number++; number == n/size { // the last page
					got := (float64(inUse()) - float64(before)) / n
					t.Logf("%.2f bytes a record", got)
					assert.LessOrEqual(t, got, tt.max)
					break
				}
			}
			assert.Equal(t, n/size, number)
		})
	}
}

func static(ids []int64) fixtures.Fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		return fixtures.PageOf(ids, r), ctx.Err()
	}
}

// delayed returns a Fetch that waits before it calls f.
func delayed(f fixtures.Fetch, delay time.Duration) fixtures.Fetch {
	return func(ctx context.Context, r msgpush.PageRequest) (*fixtures.Page, error) {
		select {
		case <-time.After(delay):
			return f(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// inUse returns the number of bytes in use, including values in pools.
func inUse() uint64 {
	runtime.GC() // a sync.Pool keeps its values for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// assertOnlyError checks that an iterator yields one error, which contains a text, and no record.
func assertOnlyError(t *testing.T, want string, records iter.Seq2[int64, error]) {
	t.Helper()
	errs := 0
	for id, err := range records {
		errs++
		assert.Zero(t, id)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "msgpush: ")
	}
	assert.Equal(t, 1, errs)
}

// randomID maps ids to distinct random ids.
func randomID(id int64) int64 {
	x := uint64(id) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x ^ x>>31)
}
