package main

import "fmt"

// colors are the colours of the match results, by the order of their codes. Further results share the last
// one. Readers who are colour-blind can distinguish them: they are grey and colours of the palette of Okabe
// and Ito.
var colors = []string{"#888888", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"}

// The size of a chart and the area of its bars, in units of the viewBox of the page.
const (
	chartLeft   = 40.0
	chartWidth  = 600.0
	chartTop    = 10.0
	chartHeight = 160.0
)

// A chart has the coordinates of an SVG drawing with a bar for each day.
type chart struct {
	Bars  []bar
	Lines []label // horizontal lines at round numbers
	Dates []label
}

type bar struct {
	X, Y, Width, Height float64
	Color, Title        string
}

// A label is a text at an offset on one of the axes.
type label struct {
	At   float64
	Text string
}

// A series is the part of each bar in one colour.
type series struct {
	name, color string
	count       func(day) int
}

// newChart stacks the series, the first one at the bottom.
func newChart(days []day, stack []series) chart {
	var c chart
	highest := 1
	for _, d := range days {
		height := 0
		for _, s := range stack {
			height += s.count(d)
		}
		highest = max(highest, height)
	}
	step := roundStep(highest)
	top := (highest + step - 1) / step * step
	y := func(count int) float64 { return chartTop + chartHeight*(1-float64(count)/float64(top)) }
	for count := 0; count <= top; count += step {
		c.Lines = append(c.Lines, label{At: y(count), Text: fmt.Sprint(count)})
	}

	width := chartWidth / float64(len(days))
	every := (len(days) + 9) / 10 // at most 10 dates fit
	for i, d := range days {
		x := chartLeft + float64(i)*width
		below := 0
		for _, s := range stack {
			count := s.count(d)
			if count == 0 {
				continue
			}
			c.Bars = append(c.Bars, bar{
				X:      x + 0.1*width,
				Y:      y(below + count),
				Width:  0.8 * width,
				Height: y(below) - y(below+count),
				Color:  s.color,
				Title:  fmt.Sprintf("%s: %d %s", d.Date.Format("2006-01-02"), count, s.name),
			})
			below += count
		}
		if (len(days)-1-i)%every == 0 {
			c.Dates = append(c.Dates, label{At: x + width/2, Text: d.Date.Format("01-02")})
		}
	}
	return c
}

// roundStep returns 1, 2 or 5 times a power of ten. At most five such steps reach highest.
func roundStep(highest int) int {
	for unit := 1; ; unit *= 10 {
		for _, step := range []int{unit, 2 * unit, 5 * unit} {
			if highest <= 5*step {
				return step
			}
		}
	}
}
