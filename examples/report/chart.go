package main

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	chartWidth = 720 * vg.Length(1)
	dayHeight  = 240 * vg.Length(1)
	rowHeight  = 40 * vg.Length(1) // of the chart of the rules
)

// colors tell the match results apart, for the colour-blind too (the palette of
// Okabe and Ito, without its yellow), on white and on black. What is beyond them
// shares the last.
var colors = []string{"#0072B2", "#56B4E9", "#CC79A7", "#009E73", "#E69F00", "#888888"}

const errorColor = "#D55E00"

// Text is drawn in black, which vgsvg leaves out, so that the style of the page
// decides. Lines are between what is seen on white and on black.
var lineStyle = draw.LineStyle{Color: color.NRGBA{128, 128, 128, 160}, Width: 0.5}

// textFont has the widths of Arial and Helvetica, which the style of the page
// asks for too.
var textFont = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 11}

// newPlot returns a plot without a background, with text in the page's font.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle = lineStyle
		axis.Tick.LineStyle = lineStyle
		axis.Tick.Length = 4
		axis.Tick.Label.Font = textFont
	}
	return p
}

// dayChart returns a bar for each day, in which those of the series are stacked.
// Each series has one value for each day.
func dayChart(days []day, series [][]int, seriesColors []string) (template.HTML, error) {
	p := newPlot()
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = lineStyle
	p.Add(grid)
	width := 0.75 * (chartWidth - 50) / vg.Length(max(len(days), 7))
	if err := addBars(p, series, seriesColors, width, false); err != nil {
		return "", err
	}
	p.X.Tick.Marker = dayTicks(days)
	p.X.Min, p.X.Max = -0.5, float64(len(days))-0.5
	p.X.Padding, p.Y.Padding = 0, 0
	p.Y.Tick.Marker, p.Y.Max = countTicks(p.Y.Max)
	return drawSVG(p, dayHeight)
}

// ruleChart returns a bar for each rule, the first on top, its name above it.
func ruleChart(rules []rule, results []result) (template.HTML, error) {
	p := newPlot()
	series := make([][]int, len(results))
	seriesColors := make([]string, len(results))
	for i, result := range results {
		seriesColors[i] = result.Color
		for _, rule := range slices.Backward(rules) { // upwards, as the axis goes
			series[i] = append(series[i], rule.Results[i])
		}
	}
	if err := addBars(p, series, seriesColors, rowHeight*0.4, true); err != nil {
		return "", err
	}
	var names, counts plotter.XYLabels
	for i, rule := range rules {
		y := float64(len(rules) - 1 - i)
		names.XYs = append(names.XYs, plotter.XY{Y: y})
		names.Labels = append(names.Labels, chartName(rule))
		counts.XYs = append(counts.XYs, plotter.XY{X: float64(rule.Records), Y: y})
		counts.Labels = append(counts.Labels, strconv.Itoa(rule.Records))
	}
	if err := addLabels(p, names, vg.Point{X: 1, Y: rowHeight * 0.3}); err != nil {
		return "", err
	}
	if err := addLabels(p, counts, vg.Point{X: 5, Y: -4}); err != nil {
		return "", err
	}
	p.X.Min = 0
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Tick.Marker, p.X.Max = countTicks(p.X.Max)
	p.Y.Min, p.Y.Max = -0.5, float64(len(rules))-0.25
	p.Y.Tick.Marker = plot.ConstantTicks{}
	p.Y.Tick.Length = 0
	return drawSVG(p, rowHeight*vg.Length(len(rules))+30)
}

// addBars stacks the bars of each series on those of the one before it.
func addBars(p *plot.Plot, series [][]int, seriesColors []string, width vg.Length, horizontal bool) error {
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
		bars.Horizontal = horizontal
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
	}
	return nil
}

// addLabels adds text that begins at its point.
func addLabels(p *plot.Plot, at plotter.XYLabels, offset vg.Point) error {
	labels, err := plotter.NewLabels(at)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font = textFont
	}
	labels.Offset = offset
	p.Add(labels)
	return nil
}

func parseColor(s string) (color.Color, error) {
	c := color.NRGBA{A: 255}
	_, err := fmt.Sscanf(s, "#%02X%02X%02X", &c.R, &c.G, &c.B)
	return c, err
}

// dayTicks returns a tick for each of up to ten days, evenly spaced, the newest
// among them.
func dayTicks(days []day) plot.ConstantTicks {
	every := (len(days) + 9) / 10
	var ticks plot.ConstantTicks
	for i := (len(days) - 1) % every; i < len(days); i += every {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: days[i].Date.Format("01-02")})
	}
	return ticks
}

// countTicks returns ticks at whole numbers from 0 on, and the last of them,
// which is not below the highest count.
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

// maxChartName is how many characters of a name fit above a bar, if they are
// wide ones.
const maxChartName = 40

// chartName returns the name of a rule for a chart, where a long one would leave
// no room for anything else. The table has the whole.
func chartName(r rule) string {
	name := []rune(clean(r.RuleName))
	if len(name) > maxChartName {
		name = append(name[:maxChartName-1], '…')
	}
	return fmt.Sprintf("%s (%d)", string(name), r.ID)
}

// drawSVG returns the plot as an element of HTML. Its texts are those of the
// service; vgsvg escapes them.
func drawSVG(p *plot.Plot, height vg.Length) (template.HTML, error) {
	canvas := vgsvg.NewWith(vgsvg.UseWH(chartWidth, height))
	// The labels at the ends of an axis reach beyond it.
	p.Draw(draw.Crop(draw.New(canvas), 6, -16, 0, 0))
	var document bytes.Buffer
	if _, err := canvas.WriteTo(&document); err != nil {
		return "", err
	}
	start := bytes.Index(document.Bytes(), []byte("<svg")) // behind the head of the document
	if start < 0 {
		return "", errors.New("the chart is no SVG")
	}
	return template.HTML(document.Bytes()[start:]), nil
}
