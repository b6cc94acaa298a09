package follow_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

func TestNew(t *testing.T) {
	pager, endless := (&service{}).pager(0), (&service{}).pager(math.MaxInt)
	malformed := pager
	malformed.Name = "list \xff"
	tests := map[string]struct {
		pager   msgpush.Pager[int64]
		options follow.Options
		want    string // in the error
	}{
		"no Fetch":               {msgpush.Pager[int64]{ID: pager.ID}, follow.Options{}, "Fetch of the pager is nil"},
		"no ID":                  {msgpush.Pager[int64]{Fetch: pager.Fetch}, follow.Options{}, "ID of the pager is nil"},
		"malformed Name":         {malformed, follow.Options{}, `Name of the pager is not UTF-8: "list \xff"`},
		"endless PageSize":       {endless, follow.Options{}, "PageSize of the pager is greater than 1000000"},
		"negative PollInterval":  {pager, follow.Options{PollInterval: -1}, "PollInterval is negative: -1ns"},
		"PollInterval of ages":   {pager, follow.Options{PollInterval: math.MaxInt64}, "PollInterval is longer than a year"},
		"negative SweepInterval": {pager, follow.Options{SweepInterval: -1}, "SweepInterval is negative: -1ns"},
		"negative Window":        {pager, follow.Options{Window: -1}, "Window is negative: -1"},
		"endless Window":         {pager, follow.Options{Window: math.MaxInt}, "Window is greater than 1000000"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := follow.New(tt.pager, tt.options)
			assert.ErrorContains(t, err, tt.want)
		})
	}
	_, err := follow.New(pager, follow.Options{})
	assert.NoError(t, err)
}

func TestRunReturnsAnErrorIfItCannotBegin(t *testing.T) {
	var db database
	f, err := follow.New((&service{}).pager(0), follow.Options{})
	require.NoError(t, err)
	assert.ErrorContains(t, f.Run(nil, db.load, db.store), "the context is nil") //nolint:staticcheck // that is the case
	assert.ErrorContains(t, f.Run(t.Context(), nil, db.store), "the function load is nil")
	assert.ErrorContains(t, f.Run(t.Context(), db.load, nil), "the function store is nil")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, f.Run(ended, db.load, db.store))
	assert.ErrorContains(t, f.Run(ended, db.load, db.store), "Run was called before")
}

func TestRunReturnsAnErrorForAPositionThatItCannotRead(t *testing.T) {
	for position, want := range map[string]string{
		"since":    "the stored position is not that of a batch: invalid character 's'",
		`{}`:       "the stored position is not that of a batch: its version is 0, and not 1",
		`{"v":99}`: "the stored position is not that of a batch: its version is 99, and not 1",
	} {
		db := database{position: position}
		f, err := follow.New((&service{}).pager(0), follow.Options{})
		require.NoError(t, err)
		assert.ErrorContains(t, f.Run(t.Context(), db.load, db.store), want)
	}
}

func TestBatchStaysTheSameUntilItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(300, 1)}
		r, db := startOn(t, s)
		r.stop()
		s.prepend(1001)
		f, err := follow.New(s.pager(20), follow.Options{OnError: func(error) {}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var batches []batch
		var times []time.Time
		require.NoError(t, f.Run(ctx, db.load, func(_ context.Context, b batch) error {
			s.prepend(1001 + int64(len(batches)) + 1)
			times = append(times, time.Now())
			batches = append(batches, batch{slices.Clone(b.Records), b.Omitted, b.Position, b.Previous})
			b.Records[0] = 0 // the store may change its batch
			if len(batches) == 4 {
				cancel()
				return nil
			}
			return errors.New("unavailable")
		}))
		require.Len(t, batches, 4)
		for i, b := range batches {
			assert.Equal(t, batches[0], b)
			if i > 0 {
				pause := time.Second << (i - 1)
				assert.InDelta(t, pause, times[i].Sub(times[i-1]), float64(pause/10))
			}
		}
		assert.Equal(t, []int64{1001}, batches[0].Records)
	})
}

func TestRecordWhoseIDIsZeroIsOmittedAndRecognizedByItsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(30, 1)}
		pager := s.pager(20)
		pager.ID = func(n int64) int64 { return n % 1001 }
		r, db := start(t, pager, follow.Options{})
		wait(time.Minute)
		s.prepend(1001)
		wait(time.Hour)
		s.prepend(2002)
		wait(time.Hour)
		assert.Empty(t, db.stored())
		require.Len(t, db.omitted, 2)
		assert.Equal(t, "1001", string(db.omitted[0].JSON))
		assert.Equal(t, "2002", string(db.omitted[1].JSON))
		assert.Negative(t, db.omitted[0].ID)
		assert.EqualError(t, db.omitted[1].Err, "the record has no id, or the id 0")
		assert.Empty(t, r.errors())
	})
}

func TestOmittedRecordIsDeliveredOnceWithItsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := msgpush.OmittedRecord{Index: 1, ID: 1001, JSON: []byte(`{"id":1001}`), Err: errors.New("bad")}
		s := &service{list: numbers(300, 1)}
		s.edit = func(_ int, p *page) {
			if i := slices.Index(p.List, 1001); i >= 0 {
				bad.Index = i
				p.List = slices.Delete(p.List, i, i+1)
				p.Omitted = []msgpush.OmittedRecord{bad}
			}
		}
		r, db := startOn(t, s)
		s.prepend(1000, 1001, 1002)
		wait(time.Minute)
		s.prepend(numbers(1003, 1100)...)
		wait(2 * time.Hour)
		assert.Equal(t, append([]int64{1000}, numbers(1002, 1100)...), db.records)
		require.Len(t, db.omitted, 1)
		assert.Equal(t, bad.ID, db.omitted[0].ID)
		assert.Equal(t, bad.JSON, db.omitted[0].JSON)
		assert.EqualValues(t, 1, r.Status().Omitted)
		assert.NoError(t, r.Status().Check(time.Minute))
		r.stop()
		restart(t, s.pager(20), db, follow.Options{})
		wait(2 * time.Hour)
		assert.Len(t, db.omitted, 1)
	})
}

func TestOmittedRecordWithoutAnIntegerIDIsRecognized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(300, 1)}
		s.edit = func(_ int, p *page) { // each number above 1000 is such a record
			ids := map[int64]string{1002: `"a81f"`, 1003: "1.5", 1004: "18446744073709551615"}
			for i, n := range slices.Backward(p.List) {
				if n > 1000 {
					p.List = slices.Delete(p.List, i, i+1)
					text := fmt.Sprintf(`{"name":"%d"}`, n)
					if ids[n] != "" {
						text = fmt.Sprintf(`{"id":%s,"views":%d}`, ids[n], len(s.requests))
					}
					bad := msgpush.OmittedRecord{Index: i, JSON: []byte(text), Err: errors.New("no id")}
					p.Omitted = slices.Insert(p.Omitted, 0, bad)
				}
			}
		}
		r, db := startOn(t, s)
		s.prepend(1001, 1002, 1003, 1004)
		wait(2 * time.Hour)
		r.stop()
		s.prepend(500)
		r = restart(t, s.pager(20), db, follow.Options{Window: 10})
		s.insertAt(15, 501) // too far from the newest record
		wait(time.Hour)
		assert.Equal(t, []int64{500}, db.records)
		require.Len(t, db.omitted, 4)
		assert.Equal(t, `{"name":"1001"}`, string(db.omitted[0].JSON))
		assert.Contains(t, string(db.omitted[1].JSON), `{"id":"a81f","views":`)
		assert.Negative(t, db.omitted[0].ID)
		assert.NotEqual(t, db.omitted[0].ID, db.omitted[1].ID)
		assert.Len(t, r.missing(), 1, "the record that is too far")
	})
}
