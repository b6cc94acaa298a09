package main

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A chart is drawn twice, so that its text is readable on wide and on narrow screens without
// scrolling. The style of the page shows one of the two.
type chart struct {
	Wide, Narrow template.HTML
}

// A chartSize sets the proportions of a drawing. The page scales the drawing to the width of the
// screen.
type chartSize struct {
	width, height vg.Length
	ticks         int // maximum number of evenly spaced labels of days
}

var (
	wideSize   = chartSize{width: 640, height: 200, ticks: 10}
	narrowSize = chartSize{width: 340, height: 190, ticks: 5}
)

// colors are the colours of the match results. Results beyond the last colour share the last
// colour. Red-green colour-blind readers can distinguish them (grey, and four colours of the
// palette of Okabe and Ito), and the contrast to the light and to the dark background is at least
// 3:1.
var colors = []string{"#888888", "#0072B2", "#D55E00", "#009E73", "#CC79A7"}

// lineStyle is visible on the light and on the dark background. Text needs no colour: vgsvg omits
// black, so the style of the page sets the colour.
var lineStyle = draw.LineStyle{Color: color.NRGBA{128, 128, 128, 160}, Width: 0.5}

// textFont has the widths of Arial and Helvetica, the fonts of the page.
var textFont = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}

// newChart returns a chart with one bar per day, in which the series are stacked. Each series has
// one value per day. unit names the values.
func newChart(unit string, days []day, series [][]int, seriesColors []string) (c chart, err error) {
	c.Wide, err = drawDays(wideSize, unit, days, series, seriesColors)
	if err != nil {
		return chart{}, err
	}
	c.Narrow, err = drawDays(narrowSize, unit, days, series, seriesColors)
	return c, err
}

func drawDays(size chartSize, unit string, days []day, series [][]int, seriesColors []string) (template.HTML, error) {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = "Day (month-day)", unit
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = textFont
		axis.Label.Padding = 3
		axis.LineStyle = lineStyle
		axis.Tick.LineStyle = lineStyle
		axis.Tick.Length = 4
		axis.Tick.Label.Font = textFont
		axis.Padding = 0
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = lineStyle
	p.Add(grid)
	barWidth := (size.width - 65) / vg.Length(max(len(days), 7))
	if len(days) <= 60 {
		barWidth *= 0.75 // gaps between more bars would blur the colours
	}
	if err := addBars(p, series, seriesColors, barWidth); err != nil {
		return "", err
	}
	p.X.Tick.Marker = dayTicks(days, size.ticks)
	p.X.Min, p.X.Max = -0.5, float64(len(days))-0.5
	p.Y.Tick.Marker, p.Y.Max = countTicks(p.Y.Max)
	return drawSVG(p, size)
}

// addBars stacks the bars of each series on the bars of the previous series.
func addBars(p *plot.Plot, series [][]int, seriesColors []string, width vg.Length) error {
	var below *plotter.BarChart
	for i, counts := range series {
		values := make(plotter.Values, len(counts))
		for i, n := range counts {
			values[i] = float64(n)
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color, err = parseColor(seriesColors[i])
		if err != nil {
			return err
		}
		bars.LineStyle.Width = 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
	}
	return nil
}

func parseColor(s string) (color.NRGBA, error) {
	c := color.NRGBA{A: 255}
	_, err := fmt.Sscanf(s, "#%02X%02X%02X", &c.R, &c.G, &c.B)
	return c, err
}

// dayTicks returns ticks at the first, the worst and the last day, and at most limit evenly spaced
// ticks. Evenly spaced ticks near the others are omitted, since their labels might overlap.
func dayTicks(days []day, limit int) plot.ConstantTicks {
	every := (len(days) + limit - 1) / limit
	worst, last := worstIndex(days), len(days)-1
	var ticks plot.ConstantTicks
	for i, day := range days {
		label := day.Date.Format("01-02")
		switch {
		case i == 0 || i == last:
		case i == worst:
			if min(i, last-i) < every {
				label = "\n" + label // below the label of the first or of the last day
			}
		case (last-i)%every != 0 || i < every || max(i-worst, worst-i) < every:
			continue
		}
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: label})
	}
	return ticks
}

// countTicks returns ticks at whole numbers from 0, and the value of the last tick, which is at
// least highest.
func countTicks(highest float64) (plot.ConstantTicks, float64) {
	step := 1.0
	for i := 0; highest/step > 5; i++ {
		step = []float64{2, 5, 10}[i%3] * math.Pow10(i/3)
	}
	last := max(1, math.Ceil(highest/step)) * step
	var ticks plot.ConstantTicks
	for n := 0.0; n <= last; n += step {
		ticks = append(ticks, plot.Tick{Value: n, Label: strconv.Itoa(int(n))})
	}
	return ticks, last
}

// drawSVG returns the plot as an HTML element. Its only texts are dates, numbers and the labels of
// the axes, which need no escaping.
func drawSVG(p *plot.Plot, size chartSize) (template.HTML, error) {
	canvas := vgsvg.NewWith(vgsvg.UseWH(size.width, size.height))
	// The labels at the ends of an axis need room beyond the axis.
	p.Draw(draw.Crop(draw.New(canvas), 6, -16, 0, 0))
	var document bytes.Buffer
	if _, err := canvas.WriteTo(&document); err != nil {
		return "", err
	}
	start := bytes.Index(document.Bytes(), []byte("<svg")) // skip the XML declaration
	if start < 0 {
		return "", errors.New("the chart contains no <svg> element")
	}
	return template.HTML(document.Bytes()[start:]), nil
}
