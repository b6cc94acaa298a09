package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// A goal is a bound for what was measured.
type goal struct {
	what   string
	least  bool // the bound is a least one, not a most one
	bound  float64
	actual float64
}

func (g goal) String() string {
	relation, met := "≤", g.actual <= g.bound
	if g.least {
		relation, met = "≥", g.actual >= g.bound
	}
	verdict := "met"
	if !met {
		verdict = "**missed**"
	}
	return fmt.Sprintf("| %s | %s %.2f | %.2f | %s |", g.what, relation, g.bound, g.actual, verdict)
}

func (s *suite) printGoals(w io.Writer) {
	fmt.Fprint(w, "### Goals\n\n| what | goal | measured | |\n| --- | --- | --: | --- |\n")
	for _, g := range s.goals() {
		fmt.Fprintln(w, g)
	}
	fmt.Fprintln(w)
}

func (s *suite) goals() []goal {
	mail, page := s.cpu[0], s.cpu[1]
	compare := func(e *experiment, name, metric, to string) float64 {
		return e.entry(name).ratio(metric, e.entry(to)).Center
	}
	goals := []goal{
		{"page of 50: time, against the floor", false, 1.05, compare(page, nameOurs, "time", nameFloor)},
		{"page of 50: bytes allocated, against the floor", false, 0.60, compare(page, nameOurs, "bytes", nameFloor)},
		{"mail detail: time, against the floor", false, 1.25, compare(mail, nameOurs, "time", nameFloor)},
		{"mail detail, without a deadline: time, against the floor", false, 1.25, compare(s.endless, nameOurs, "time", nameFloor)},
	}
	var peers []float64
	for _, c := range contenders() {
		if !c.ours && c.name != nameFloor && c.name != nameTwice {
			peers = append(peers, compare(page, c.name, "time", nameOurs))
		}
	}
	goals = append(goals,
		goal{"page of 50: time of the fastest peer, against ours", true, 1, slices.Min(peers)},
		goal{"page of 50: time of envelope first and data second, against ours", true, 1.5, compare(page, nameTwice, "time", nameOurs)},
		goal{"page of 50: time with the fastest decoder, against our default", false, 0.40,
			min(compare(page, nameSonic, "time", nameOurs), compare(page, nameGoccy, "time", nameOurs))},
	)
	leastCalls := []float64{0.90, 1, 1} // of each subject; the first has the most noise
	for i, many := range s.many {
		what := fmt.Sprintf("%d callers, %s: ", manyCallers, subjects[i].name)
		goals = append(goals,
			goal{what + "calls a second, against the floor", true, leastCalls[i], compare(many, nameOurs, "calls a second", nameFloor)},
			goal{what + "p99, against the floor", false, 1.10, compare(many, nameOurs, "p99", nameFloor)},
			goal{what + "dials, against the floor", false, 1, compare(many, nameOurs, "dials", nameFloor)},
		)
	}
	goals = append(goals, goal{
		fmt.Sprintf("%d callers, GOAWAY every %d requests: p99, against the floor", goawayCallers, goawayRequests),
		false, 1.20, compare(s.goaway, nameOurs, "p99", nameFloor),
	})
	return append(goals,
		goal{"walk: time with Prefetch(0), against Prefetch(8)", true, 6.5, compare(s.walks, prefetchName(0), "time", prefetchName(8))},
		goal{"a million records: bytes held a record", false, 48, s.million.entry(withIDs).median(heldPerRecord)},
		goal{"a million records without ids: bytes held a record", false, 1, s.million.entry(withoutIDs).median(heldPerRecord)},
		goal{"growth: time a page of the most pages, off that of a tenth of them", false, 0.10, s.nonlinearity()},
	)
}

// nonlinearity returns by how much the time a page of the longest walk is off
// that of one with a tenth of its pages, as a part of it.
func (s *suite) nonlinearity() float64 {
	last := len(s.growth) - 1
	longest, shorter := s.growth[last].entry(withIDs), s.growth[max(0, last-1)].entry(withIDs)
	return math.Abs(longest.ratio("time a page", shorter).Center - 1)
}
