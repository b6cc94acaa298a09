package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"golang.org/x/perf/benchmath"
	"golang.org/x/sync/errgroup"
)

// A measurement holds the values of one round by the name of the metric.
type measurement map[string]float64

type metric struct {
	name   string
	format func(float64) string
}

// An entry is one row of an experiment.
type entry struct {
	name   string
	run    func() (measurement, error)
	rounds []measurement
}

// An experiment compares its entries with the first one, the baseline.
type experiment struct {
	title   string
	metrics []metric
	entries []*entry
	// concurrent measures all entries concurrently. It is set if they mostly wait.
	concurrent bool
}

// round measures every entry once. Each round begins with another entry, so that no entry
// is always the first.
func (e *experiment) round(n int) error {
	var group errgroup.Group
	if !e.concurrent {
		group.SetLimit(1)
	}
	for i := range e.entries {
		entry := e.entries[(i+n)%len(e.entries)]
		group.Go(func() error {
			m, err := entry.run()
			if err != nil {
				return fmt.Errorf("%s: %s: %w", e.title, entry.name, err)
			}
			entry.rounds = append(entry.rounds, m)
			return nil
		})
	}
	return group.Wait()
}

func (e *experiment) entry(name string) *entry {
	for _, entry := range e.entries {
		if entry.name == name {
			return entry
		}
	}
	panic("no entry " + name)
}

func (e *entry) median(metric string) float64 {
	return e.summary(func(m measurement) float64 { return m[metric] }).Center
}

// ratio returns the median of the ratios to another entry, round by round.
func (e *entry) ratio(metric string, to *entry) benchmath.Summary {
	round := 0
	return e.summary(func(m measurement) float64 {
		base := to.rounds[round][metric]
		round++
		return m[metric] / base
	})
}

func (e *entry) summary(value func(measurement) float64) benchmath.Summary {
	values := make([]float64, len(e.rounds))
	for i, m := range e.rounds {
		values[i] = value(m)
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95)
}

// print writes a table in Markdown: for each metric the median and the ratio to the
// baseline.
func (e *experiment) print(w io.Writer) {
	fmt.Fprintf(w, "## %s\n\n|", e.title)
	for _, m := range e.metrics {
		fmt.Fprintf(w, " | %s | ratio", m.name)
	}
	fmt.Fprintf(w, " |\n| ---%s |\n", strings.Repeat(" | --: | --:", len(e.metrics)))
	for _, entry := range e.entries {
		fmt.Fprintf(w, "| %s", entry.name)
		for _, m := range e.metrics {
			fmt.Fprintf(w, " | %s | %s", m.format(entry.median(m.name)), ratio(entry.ratio(m.name, e.entries[0])))
		}
		fmt.Fprintf(w, " |\n")
	}
	fmt.Fprintln(w)
}

// ratio formats a ratio with the bounds of its 95 % confidence interval.
func ratio(s benchmath.Summary) string {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case !finite(s.Center): // the baseline is 0
		return "–"
	case s.Lo == s.Hi || !finite(s.Lo) || !finite(s.Hi): // no spread, or too few rounds
		return fmt.Sprintf("%.2f", s.Center)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Center, s.Lo, s.Hi)
}

func duration(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return fmt.Sprintf("%.1f µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.1f ms", seconds*1e3)
	default:
		return fmt.Sprintf("%.2f s", seconds)
	}
}

func kilobytes(bytes float64) string { return fmt.Sprintf("%.1f KB", bytes/1e3) }
func number(n float64) string        { return fmt.Sprintf("%.0f", n) }
func hundredths(n float64) string    { return fmt.Sprintf("%.2f", n) }
