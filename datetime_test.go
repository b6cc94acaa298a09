package msgpush_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestDateTimeTime(t *testing.T) {
	shanghai := time.FixedZone("UTC+8", 8*60*60)
	got, err := msgpush.DateTime("2026-02-26 23:02:12").Time(shanghai)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2026, 2, 26, 23, 2, 12, 0, shanghai), got)
	leap, err := msgpush.DateTime("2028-02-29 00:00:00").Time(time.UTC)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC), leap)

	for _, d := range []msgpush.DateTime{
		"",
		"2026-02-26",
		"2026-02-26T23:02:12",
		"2026-02-26 23:02:12Z",
		"2026-02-26 23:02:12.5",
		"2026-02-26 3:02:12",
		"2026-2-26 23:02:12",
		"2026-02-26  3:02:12",
		"2026-02-30 23:02:12",
		"2026-02-26 24:00:00",
		"0000-00-00 00:00:00",
		" 2026-02-26 23:02:12",
		msgpush.DateTime(strings.Repeat("2026\n", 1000)),
	} {
		_, err := d.Time(time.UTC)
		assert.ErrorContains(t, err, "YYYY-MM-DD HH:MM:SS", d)
		fixtures.AssertOneLine(t, err.Error())
	}
	_, err = msgpush.DateTime("2026-02-26 23:02:12").Time(nil)
	assert.ErrorContains(t, err, "location is nil")
}

func FuzzDateTimeTime(f *testing.F) {
	for _, seed := range []string{
		"",
		"2026-02-26 23:02:12",
		"2026-02-26 3:02:12",
		"2026-02-26 23:02:12.5",
		"0000-00-00 00:00:00",
		"0000-01-01  0:00:00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := msgpush.DateTime(s).Time(time.UTC)
		if err != nil {
			fixtures.AssertOneLine(t, err.Error())
			return
		}
		assert.Equal(t, s, got.Format("2006-01-02 15:04:05"))
	})
}
