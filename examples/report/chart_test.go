package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func daysOf(records ...int) []day {
	var days []day
	for i, n := range records {
		days = append(days, day{
			Date:    time.Date(2026, 3, 1+i, 0, 0, 0, 0, time.UTC),
			Results: map[int]int{0: n, 1: 2 * n},
		})
	}
	return days
}

func TestBarsAreStackedAndProportional(t *testing.T) {
	stack := []series{
		{"first", "#111111", func(d day) int { return d.Results[0] }},
		{"second", "#222222", func(d day) int { return d.Results[1] }},
	}
	c := newChart(daysOf(10, 0, 20), stack)
	require.Len(t, c.Bars, 4, "a count of 0 has no bar")
	record := c.Bars[0].Height / 10
	bottom := chartTop + chartHeight
	for i, want := range []struct {
		color       string
		low, height float64 // in records
	}{{"#111111", 0, 10}, {"#222222", 10, 20}, {"#111111", 0, 20}, {"#222222", 20, 40}} {
		assert.Equal(t, want.color, c.Bars[i].Color)
		assert.InDelta(t, want.height*record, c.Bars[i].Height, 0.001)
		assert.InDelta(t, bottom-want.low*record, c.Bars[i].Y+c.Bars[i].Height, 0.001)
	}
	assert.Equal(t, "2026-03-03: 40 second", c.Bars[3].Title)
	assert.Greater(t, c.Bars[2].X, c.Bars[1].X)
	assert.InDelta(t, bottom, c.Lines[0].At, 0.001)
	assert.InDelta(t, 60*record, bottom-c.Lines[3].At, 0.001, "the line of 60 records")
}

func TestLinesAreAtRoundNumbers(t *testing.T) {
	for highest, want := range map[int][]string{
		0:         {"0", "1"},
		5:         {"0", "1", "2", "3", "4", "5"},
		6:         {"0", "2", "4", "6"},
		26:        {"0", "10", "20", "30"},
		1_234_567: {"0", "500000", "1000000", "1500000"},
	} {
		c := newChart(daysOf(highest), []series{{"", "", func(d day) int { return d.Results[0] }}})
		var lines []string
		for _, line := range c.Lines {
			lines = append(lines, line.Text)
		}
		assert.Equal(t, want, lines)
	}
}

func TestDatesFitBelowTheBars(t *testing.T) {
	for _, days := range []int{1, 10, 30, 366} {
		c := newChart(daysOf(make([]int, days)...), nil)
		last := time.Date(2026, 3, days, 0, 0, 0, 0, time.UTC).Format("01-02")
		assert.LessOrEqual(t, len(c.Dates), 10)
		assert.Equal(t, last, c.Dates[len(c.Dates)-1].Text)
	}
}

func TestFurtherResultsShareTheLastColor(t *testing.T) {
	r := newReport(time.UTC, now, 1)
	for code := range len(colors) + 2 {
		r.results[code] = &result{Code: code}
	}
	r.finish()
	require.Len(t, r.Results, len(colors)+2)
	for i, counted := range r.Results {
		assert.Equal(t, colors[min(i, len(colors)-1)], counted.Color)
	}
}
