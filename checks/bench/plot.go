package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// colors are the colours of the lines in plotGrowth. Dashes and marks distinguish the
// lines in greyscale. In the bar chart, the first colour is for the other clients.
var colors = []color.RGBA{
	{0x8a, 0x8f, 0x98, 0xff},
	{0x1b, 0x4f, 0x9c, 0xff},
	{0xd9, 0x7a, 0x1e, 0xff},
	{0x2f, 0x9e, 0x77, 0xff},
}

func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.Y.Label.Text = y
	p.Legend.Padding = vg.Points(3)
	p.Legend.YPosition = draw.PosCenter
	return p
}

// plotIteration draws a bar for each iterator.
func plotIteration(e *experiment, file string) error {
	p := newPlot(e.title, "time (s), median of the rounds")
	var names []string
	thumbnails := map[color.Color]plot.Thumbnailer{} // of the last bar of each colour
	for i, entry := range e.entries {
		bar, err := plotter.NewBarChart(plotter.Values{entry.median("time")}, vg.Points(22))
		if err != nil {
			return err
		}
		bar.XMin = float64(i)
		bar.LineStyle.Width = 0
		bar.Color = colors[0]
		if strings.HasPrefix(entry.name, nameMsgpush) {
			bar.Color = colors[1]
		}
		p.Add(bar)
		thumbnails[bar.Color] = bar
		label, err := plotter.NewLabels(plotter.XYLabels{
			XYs:    plotter.XYs{{X: float64(i), Y: entry.median("time")}},
			Labels: []string{fmt.Sprintf("%.2f", entry.median("time"))},
		})
		if err != nil {
			return err
		}
		label.TextStyle[0].XAlign = draw.XCenter
		p.Add(label)
		names = append(names, entry.name)
	}
	p.NominalX(names...)
	p.X.Tick.Label.Rotation = math.Pi / 6
	p.X.Tick.Label.XAlign = draw.XRight
	p.Y.Min = 0
	p.Y.Max *= 1.3 // room for the legend
	p.Legend.Top = true
	p.Legend.Add("other clients, one page after another", thumbnails[colors[0]])
	p.Legend.Add("msgpush", thumbnails[colors[1]])
	return savePlots(file, []*plot.Plot{p}, 16*vg.Centimeter)
}

// plotGrowth draws time and memory against the number of pages.
func plotGrowth(growth []*experiment, pages []int, file string) error {
	time := newPlot("Iteration time", "time (ms)")
	held := newPlot("Memory held at the end", "memory (KB)")
	for i, first := range growth[0].entries {
		var times, bytes plotter.XYs
		for j, e := range growth {
			n := float64(pages[j])
			entry := e.entry(first.name)
			times = append(times, plotter.XY{X: n, Y: entry.median(timePerPage) * n * 1e3})
			bytes = append(bytes, plotter.XY{X: n, Y: max(0.1, entry.median("bytes held")/1e3)})
		}
		if err := addLine(time, first.name, times, i); err != nil {
			return err
		}
		if err := addLine(held, first.name, bytes, i); err != nil {
			return err
		}
	}
	held.Legend = plot.NewLegend() // the legend of time is for both plots
	return savePlots(file, []*plot.Plot{time, held}, 12*vg.Centimeter)
}

// addLine adds a line with a mark at each of its points.
func addLine(p *plot.Plot, name string, points plotter.XYs, i int) error {
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, marks.Color = colors[i], colors[i]
	line.Width = vg.Points(1.5)
	line.Dashes = [][]vg.Length{nil, nil, {vg.Points(6), vg.Points(3)}, {vg.Points(2), vg.Points(2)}}[i]
	marks.Shape = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}}[i]
	marks.Radius = vg.Points(3)
	p.Add(line, marks)
	p.Legend.Add(name, line, marks)
	p.X.Label.Text = "pages of 50 records"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.TickerFunc(logTicks)
	return nil
}

// logTicks returns ticks at 1, 2 and 5 times the powers of ten. [plot.LogTicks] labels only
// the powers of ten, if there are any.
func logTicks(lowest, highest float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow10(int(math.Floor(math.Log10(lowest)))); power <= highest; power *= 10 {
		for _, n := range []float64{1, 2, 5} {
			ticks = append(ticks, plot.Tick{Value: n * power, Label: fmt.Sprintf("%.3g", n*power)})
		}
	}
	return ticks
}

// savePlots draws plots next to each other in an SVG file.
func savePlots(file string, plots []*plot.Plot, width vg.Length) error {
	canvas := vgsvg.New(width*vg.Length(len(plots)), 10*vg.Centimeter)
	page := draw.New(canvas)
	page.SetColor(color.White) // readable on a dark page, too
	page.Fill(page.Path())
	page = draw.Crop(page, vg.Centimeter/2, -vg.Centimeter/2, vg.Centimeter/2, -vg.Centimeter/2)
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Centimeter}
	for i, c := range plot.Align([][]*plot.Plot{plots}, tiles, page)[0] {
		plots[i].BackgroundColor = nil
		plots[i].Draw(c)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := canvas.WriteTo(f); err != nil {
		return err
	}
	return f.Close()
}
