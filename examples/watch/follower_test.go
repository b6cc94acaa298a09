package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A list is a list of the service.
type list struct {
	ids      []int64
	requests int
	fail     int // the number of the request that fails
	noTotals bool
}

func (l *list) page(_ context.Context, number int) (*msgpush.Page[msgpush.ForwardLog], error) {
	l.requests++
	if l.requests == l.fail {
		return nil, errors.New("no page")
	}
	page := &msgpush.Page[msgpush.ForwardLog]{PageNum: number, PageSize: pageSize}
	if !l.noTotals {
		page.Total, page.Pages = int64(len(l.ids)), (len(l.ids)+pageSize-1)/pageSize
	}
	from := min((number-1)*pageSize, len(l.ids))
	for _, id := range l.ids[from:min(from+pageSize, len(l.ids))] {
		page.List = append(page.List, msgpush.ForwardLog{ID: id})
	}
	return page, nil
}

func numbers(from, to int64) []int64 {
	var ids []int64
	for id := from; id <= to; id++ {
		ids = append(ids, id)
	}
	return ids
}

func reversed(ids []int64) []int64 {
	ids = slices.Clone(ids)
	slices.Reverse(ids)
	return ids
}

func poll(t *testing.T, f *follower, limit int) []int64 {
	t.Helper()
	fresh, _, err := f.poll(t.Context(), limit)
	require.NoError(t, err)
	var ids []int64
	for _, record := range fresh {
		ids = append(ids, record.ID)
	}
	return ids
}

// Records are inserted and deleted between polls, in both orders of the list.
func TestEachNewRecordIsFoundOnceInOrder(t *testing.T) {
	for name, order := range map[string]func([]int64) []int64{"newest first": reversed, "oldest first": slices.Clone[[]int64]} {
		for _, begin := range []int64{0, 1, 99, 100, 101, 250} {
			t.Run(fmt.Sprint(name, ", from ", begin), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(begin), 1))
				first, last := int64(1), begin
				l := list{ids: order(numbers(first, last))}
				f := newFollower(l.page)
				start := poll(t, f, 10)
				assert.Equal(t, numbers(max(1, last-int64(len(start))+1), last), start)
				assert.GreaterOrEqual(t, len(start), int(min(10, last)))
				for range 40 {
					then := last
					last += random.Int64N(350)
					first += random.Int64N(max(1, then-first)) / 2
					l.ids = order(numbers(first, last))
					require.Equal(t, numbers(then+1, last), poll(t, f, math.MaxInt))
					require.LessOrEqual(t, len(f.seen), maxSeen)
				}
				l.requests = 0
				assert.Empty(t, poll(t, f, math.MaxInt))
				assert.Equal(t, 1, l.requests, "a poll without new records is one request")
			})
		}
	}
}

func TestListWithoutTotals(t *testing.T) {
	l := list{ids: reversed(numbers(1, 150)), noTotals: true}
	f := newFollower(l.page)
	assert.Equal(t, numbers(51, 150), poll(t, f, 10))
	l.ids = reversed(numbers(1, 400))
	assert.Equal(t, numbers(151, 400), poll(t, f, math.MaxInt))
}

func TestRecordThatBecomesVisibleLateIsFound(t *testing.T) {
	l := list{ids: []int64{9, 8, 6, 5}}
	f := newFollower(l.page)
	assert.Equal(t, []int64{5, 6, 8, 9}, poll(t, f, 1))
	l.ids = []int64{10, 9, 8, 7, 6, 5}
	assert.Equal(t, []int64{7, 10}, poll(t, f, math.MaxInt))
	assert.Empty(t, poll(t, f, math.MaxInt))
}

func TestRecordsRemovedFromSeenAreNotNew(t *testing.T) {
	var l list
	f := newFollower(l.page)
	assert.Empty(t, poll(t, f, 1))
	l.ids = reversed(numbers(1, maxSeen+1500))
	assert.Equal(t, numbers(1, maxSeen+1500), poll(t, f, math.MaxInt))
	l.ids = reversed(numbers(1, 1300)) // all ids in seen have been deleted
	assert.Empty(t, poll(t, f, math.MaxInt))
}

func TestRecordOnTwoPagesIsFoundOnce(t *testing.T) {
	l := list{ids: append(reversed(numbers(51, 150)), reversed(numbers(1, 60))...)}
	f := newFollower(l.page)
	assert.Equal(t, numbers(1, 150), poll(t, f, math.MaxInt))
}

func TestFailedPollLosesNoRecord(t *testing.T) {
	for fail := 1; fail <= 3; fail++ {
		for name, order := range map[string]func([]int64) []int64{"newest first": reversed, "oldest first": slices.Clone[[]int64]} {
			l := list{ids: order(numbers(1, 250))}
			f := newFollower(l.page)
			poll(t, f, 1)
			l.ids, l.requests, l.fail = order(numbers(1, 550)), 0, fail
			_, _, err := f.poll(t.Context(), math.MaxInt)
			require.Error(t, err)
			assert.Equal(t, numbers(251, 550), poll(t, f, math.MaxInt), name)
		}
	}
}

func TestPagesOfAPollAreLimited(t *testing.T) {
	l := list{ids: []int64{1}}
	f := newFollower(l.page)
	poll(t, f, 1)
	l.ids, l.requests = reversed(numbers(1, 2*maxPages*pageSize)), 0
	fresh, complete, err := f.poll(t.Context(), math.MaxInt)
	require.NoError(t, err)
	assert.False(t, complete)
	assert.Len(t, fresh, maxPages*pageSize)
	assert.LessOrEqual(t, l.requests, maxPages+1, "and one request to find the order")
	assert.Len(t, f.seen, maxSeen)

	l.ids = reversed(numbers(1, 2*maxPages*pageSize+1))
	fresh, complete, err = f.poll(t.Context(), math.MaxInt)
	require.NoError(t, err)
	assert.True(t, complete)
	assert.Len(t, fresh, 1, "skipped records stay skipped")
}
