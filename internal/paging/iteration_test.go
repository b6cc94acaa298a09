package paging

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Some services count records that they do not show. If the visible ones fill the last page, the
// page behind it is empty, although the total promises a record on it.
func TestEmptyLastPageIsNoErrorIfSecondPassConfirmsIt(t *testing.T) {
	errInconsistent := errors.New("inconsistent list")
	for name, tt := range map[string]struct {
		total, visible int64
		fails          bool // only the first response for the empty page is wrong
		want           string
	}{
		"one record is hidden":           {101, 100, false, ""},
		"nine records are hidden":        {109, 100, false, ""},
		"half a page is hidden":          {110, 100, false, "100 of 110 records came"},
		"the first empty page is wrong":  {105, 105, true, ""},
		"the last page lacks one record": {105, 104, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mustFail := tt.fails
			it := New(Source[int64]{
				Fetch: func(_ context.Context, number, size int) (*Response[int64], error) {
					page := &Response[int64]{PageNum: number, PageSize: size, Total: tt.total, List: []int64{}}
					from := int64((number - 1) * size)
					if mustFail && from >= 100 {
						mustFail = false
						return page, nil
					}
					for id := from; id < min(from+int64(size), tt.visible); id++ {
						page.List = append(page.List, id)
					}
					return page, nil
				},
				ID: func(id int64) int64 { return id },
			}, 20, 0)
			for it.More() {
				_, err := it.Next(t.Context())
				require.NoError(t, err)
			}
			assert.Equal(t, tt.visible, it.Delivered())
			if tt.want == "" {
				assert.NoError(t, it.Err(errInconsistent))
			} else {
				assert.ErrorContains(t, it.Err(errInconsistent), tt.want)
			}
		})
	}
}

// A deletion moves record 3, which cannot be decoded, to page 1. There, the other record repeats.
func TestErrorOfARecordThatMovedToARepeatedPageIsKept(t *testing.T) {
	errBad := errors.New("record 3 cannot be decoded")
	first := true
	it := New(Source[int64]{
		Fetch: func(_ context.Context, number, size int) (*Response[int64], error) {
			page := &Response[int64]{PageNum: number, PageSize: size, Total: 3}
			switch {
			case first:
				first = false
				page.List, page.Total = []int64{1, 2}, 4
			case number == 1:
				page.List, page.Omitted = []int64{2}, 1
				return page, errBad
			default:
				page.List = []int64{4}
			}
			return page, nil
		},
		ID: func(id int64) int64 { return id },
	}, 2, 0)
	for it.More() {
		_, err := it.Next(t.Context())
		require.NoError(t, err)
	}
	assert.ErrorIs(t, it.Err(errors.New("inconsistent list")), errBad)
}

// A service that sends the same page again and again makes no progress, although each page omits a
// record.
func TestRepeatedPageWithOmittedRecordEndsIteration(t *testing.T) {
	for _, total := range []int64{0, 1000} {
		requests := 0
		it := New(Source[int64]{
			Fetch: func(_ context.Context, number, _ int) (*Response[int64], error) {
				requests++
				return &Response[int64]{PageNum: number, Total: total, List: []int64{1}, Omitted: 1}, nil
			},
			ID: func(id int64) int64 { return id },
		}, 2, 0)
		for it.More() {
			_, err := it.Next(t.Context())
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, requests, 10)
	}
}

// Omitted records have no ids. They count as come, but once in each pass, however often their page
// is requested.
func TestOmittedRecordsCountOncePerPass(t *testing.T) {
	errInconsistent := errors.New("inconsistent list")
	for name, tt := range map[string]struct {
		pages [][]int64 // 0: a record that is omitted
		err   string
	}{
		"nothing is missing":       {[][]int64{{1, 2, 0, 4}, {5, 6, 7, 8}}, ""},
		"a record is missing":      {[][]int64{{1, 2, 0, 4}, {4, 6, 7, 8}}, "page 2: inconsistent list: 7 of 8 records came"},
		"two omit, one is missing": {[][]int64{{1, 0, 0, 4}, {4, 0, 7, 8}}, "page 2: inconsistent list: 7 of 8 records came"},
	} {
		t.Run(name, func(t *testing.T) {
			it := New(Source[int64]{
				Fetch: func(_ context.Context, number, _ int) (*Response[int64], error) { // ignores the page size
					page := &Response[int64]{PageNum: number, PageSize: 4, Total: 8, Pages: 2, List: []int64{}}
					if number > len(tt.pages) {
						return page, nil
					}
					for _, id := range tt.pages[number-1] {
						if id == 0 {
							page.Omitted++
						} else {
							page.List = append(page.List, id)
						}
					}
					return page, nil
				},
				ID: func(id int64) int64 { return id },
			}, 4, 0)
			for it.More() {
				_, err := it.Next(t.Context())
				require.NoError(t, err)
			}
			err := it.Err(errInconsistent)
			if tt.err == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorIs(t, err, errInconsistent)
			assert.EqualError(t, err, "msgpush: "+tt.err)
		})
	}
}
