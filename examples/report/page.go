package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"date":  func(t time.Time) string { return t.Format(time.DateOnly) },
	"share": share,
}).Parse(pageSource))

// A page is the data of the template.
type page struct {
	*report
	Title      string
	Zone       string
	Made       time.Time
	FakeServer bool // the records are made up

	ResultChart, ErrorChart chart
}

// write draws the charts and writes the page. A page without records has no charts.
func (p page) write(w io.Writer) (err error) {
	if p.Records > 0 {
		p.ResultChart, err = p.dayChart("Records", func(d day) []int { return d.Results })
		if err != nil {
			return err
		}
	}
	if p.Errors > 0 {
		p.ErrorChart, err = p.dayChart("Errors", func(d day) []int { return d.ResultErrors })
		if err != nil {
			return err
		}
	}
	return pageTemplate.Execute(w, p)
}

// dayChart draws a chart of the counts of each day. unit names the counts. counts returns one count
// for each match result.
func (r *report) dayChart(unit string, counts func(day) []int) (chart, error) {
	series := make([][]int, len(r.Results))
	seriesColors := make([]string, len(r.Results))
	for i, result := range r.Results {
		seriesColors[i] = result.Color
		for _, day := range r.Days {
			series[i] = append(series[i], counts(day)[i])
		}
	}
	return newChart(unit, r.Days, series, seriesColors)
}

// ErrorResults returns the match results of records with an error, with Records set to the number
// of errors.
func (r *report) ErrorResults() []result {
	var results []result
	for i, result := range r.Results {
		result.Records = 0
		for _, day := range r.Days {
			result.Records += day.ResultErrors[i]
		}
		if result.Records > 0 {
			results = append(results, result)
		}
	}
	return results
}

// BarWidth returns the width of the bar of a rule in percent. The rule with the most records has
// the widest bar.
func (r *report) BarWidth(records int) string {
	return fmt.Sprintf("%.1f", 100*float64(records)/float64(r.Top[0].Records))
}

// share returns n of total as a percentage. Only shares of exactly 0 and 1 are shown as 0% and
// 100%.
func share(n, total int) string {
	switch percent := 100 * float64(n) / float64(total); {
	case total == 0:
		return "–"
	case n == 0:
		return "0%"
	case n == total:
		return "100%"
	case percent < 0.1:
		return "<0.1%"
	case percent > 99.9:
		return ">99.9%"
	default:
		return fmt.Sprintf("%.1f%%", percent)
	}
}
