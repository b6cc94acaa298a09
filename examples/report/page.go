package main

import (
	_ "embed"
	"html/template"
	"io"
	"time"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// A page is what the template is given.
type page struct {
	*report
	Title   string
	Zone    string
	Made    time.Time
	StandIn bool // the records are made up

	ResultChart, RuleChart, ErrorChart template.HTML
	ErrorColor                         string
}

// write draws the charts and writes the page. Where there is no record there is
// nothing to draw.
func (p page) write(w io.Writer) (err error) {
	p.ErrorColor = errorColor
	if p.Records > 0 {
		if p.ResultChart, err = p.resultChart(); err != nil {
			return err
		}
		if p.RuleChart, err = ruleChart(p.Top, p.Results); err != nil {
			return err
		}
	}
	if p.Errors > 0 {
		if p.ErrorChart, err = p.errorChart(); err != nil {
			return err
		}
	}
	return pageTemplate.Execute(w, p)
}

func (r *report) resultChart() (template.HTML, error) {
	series := make([][]int, len(r.Results))
	seriesColors := make([]string, len(r.Results))
	for i, result := range r.Results {
		seriesColors[i] = result.Color
		for _, day := range r.Days {
			series[i] = append(series[i], day.Results[i])
		}
	}
	return dayChart(r.Days, series, seriesColors)
}

func (r *report) errorChart() (template.HTML, error) {
	counts := make([]int, len(r.Days))
	for i, day := range r.Days {
		counts[i] = day.Errors
	}
	return dayChart(r.Days, [][]int{counts}, []string{errorColor})
}
