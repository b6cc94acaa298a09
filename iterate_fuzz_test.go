package msgpush_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// reported maps a byte to a reported number: a small number, a number near the
// requested page, or an extreme.
func reported(b byte, number int) int {
	extremes := []int{math.MinInt, -1, math.MaxInt32, 1 << 40, math.MaxInt - 1, math.MaxInt}
	switch {
	case b < 128:
		return int(b)
	case b < 192:
		return number + int(b) - 160
	default:
		return extremes[int(b)%len(extremes)]
	}
}

// lyingService returns a Fetch that takes each response from 5 bytes of script: page
// number, page size, total, pages, records. The last response repeats. There are 256
// ids.
func lyingService(script []byte, check func(r msgpush.PageRequest, p *page)) fetch {
	const step = 5
	return func(_ context.Context, r msgpush.PageRequest) (*page, error) {
		b := script[:step]
		if len(script) >= 2*step {
			script = script[step:]
		}
		p := &page{
			PageNum:  reported(b[0], r.Current),
			PageSize: reported(b[1], r.Current),
			Total:    int64(reported(b[2], r.Current)),
			Pages:    reported(b[3], r.Current),
		}
		first := int64(r.Current)
		if b[4] >= 128 {
			first = int64(b[4])
		}
		for i := range int64(b[4] % 16) {
			p.List = append(p.List, (first*int64(b[4]%16)+i)%256)
		}
		check(r, p)
		return p, nil
	}
}

// FuzzLyingService checks that iteration ends, never repeats a record, requests no
// invalid page, and returns an error if it ends before the reported end.
func FuzzLyingService(f *testing.F) {
	f.Add([]byte("\x01\x0a\x32\x05\x0a"), byte(0), byte(9))
	f.Add([]byte("\xa0\x0a\x32\x05\x0a\xa0\x0a\x32\x05\x8a\xa0\x0a\x20\x05\x00\xa0\x0a\x20\x05\x0a"), byte(2), byte(3))
	f.Add([]byte("\xa0\x0a\xc5\xc5\x01"), byte(255), byte(1))
	f.Add([]byte("\xa0\x00\x00\xa1\x0a\xa0\x00\x7f\xa1\x05"), byte(1), byte(10))
	f.Fuzz(func(t *testing.T, script []byte, start, size byte) {
		if len(script) < 5 {
			t.Skip()
		}
		const maxRequests = 200_000
		endless := errors.New("iteration does not end")
		request := msgpush.PageRequest{Current: max(0, reported(start, 0)), PageSize: 1 + int(size)}
		requests, highest, longest := 0, 0, request.PageSize
		var last *page
		var list lister
		list.ID = identity
		lying := lyingService(script, func(r msgpush.PageRequest, p *page) {
			requests, highest, longest, last = requests+1, max(highest, r.Current), max(longest, len(p.List)), p
			require.Positive(t, r.Current)
		})
		list.Fetch = func(ctx context.Context, r msgpush.PageRequest) (*page, error) {
			if requests == maxRequests {
				return nil, endless
			}
			return lying(ctx, r)
		}
		delivered := map[int64]bool{}
		for id, err := range list.All(t.Context(), request) {
			if err != nil {
				require.ErrorIs(t, err, msgpush.ErrInconsistentList)
				return
			}
			require.False(t, delivered[id], "record %d was delivered twice", id)
			delivered[id] = true
		}
		emptyList := len(last.List) == 0 && last.Pages == 1 && last.Total <= 0
		if !emptyList {
			assert.LessOrEqual(t, last.Pages, highest, "pages remain")
		}
		assert.LessOrEqual(t, (max(last.Total, 1)-1)/int64(longest), int64(highest), "records remain")
	})
}
