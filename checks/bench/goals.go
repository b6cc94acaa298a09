package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// A goal is a bound for a measured value.
type goal struct {
	name    string
	atLeast bool // the bound is a minimum, not a maximum
	bound   float64
	actual  float64
}

func (g goal) String() string {
	relation, met := "≤", g.actual <= g.bound
	if g.atLeast {
		relation, met = "≥", g.actual >= g.bound
	}
	verdict := "met"
	if !met {
		verdict = "**missed**"
	}
	return fmt.Sprintf("| %s | %s %.2f | %.2f | %s |", g.name, relation, g.bound, g.actual, verdict)
}

func (s *suite) printGoals(w io.Writer) {
	fmt.Fprint(w, "## Goals\n\n| metric | goal | measured | |\n| --- | --- | --: | --- |\n")
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
		{"page of 50: time relative to baseline", false, 1.00, compare(page, nameMsgpush, "time", nameBaseline)},
		{"page of 50: bytes allocated relative to baseline", false, 0.60, compare(page, nameMsgpush, "bytes", nameBaseline)},
		{"mail detail: time relative to baseline", false, 1.45, compare(mail, nameMsgpush, "time", nameBaseline)},
		{"mail detail: allocations", false, 62, mail.entry(nameMsgpush).median("allocations")},
		{"mail detail: time of the fastest other client relative to msgpush", true, 1, fastestOther(mail)},
		{"mail detail: time of an observer relative to baseline", false, 0.10,
			compare(mail, nameObserver, "time", nameBaseline) - compare(mail, nameMsgpush, "time", nameBaseline)},
		{"mail detail, without a deadline: time relative to baseline",
			false, 1.25, compare(s.noDeadline, nameMsgpush, "time", nameBaseline)},
	}
	goals = append(
		goals,
		goal{"page of 50: time of the fastest other client relative to msgpush", true, 1, fastestOther(page)},
		goal{
			`page of 50: time of "envelope first, data second" relative to msgpush`,
			true,
			1.5,
			compare(page, nameTwice, "time", nameMsgpush),
		},
		goal{"page of 50: time with the fastest decoder relative to the default decoder", false, 0.40,
			min(compare(page, nameSonic, "time", nameMsgpush), compare(page, nameGoccy, "time", nameMsgpush))},
	)
	goals = append(goals, goal{"1 caller, mail detail: calls per second relative to baseline", true, 0.90,
		compare(s.one[0], nameMsgpush, "calls per second", nameBaseline)})
	minCalls := []float64{0.95, 1, 1} // by workload
	for i, many := range s.many {
		prefix := fmt.Sprintf("%d callers, %s: ", manyCallers, workloads[i].name)
		goals = append(
			goals,
			goal{
				prefix + "calls per second relative to baseline",
				true,
				minCalls[i],
				compare(many, nameMsgpush, "calls per second", nameBaseline),
			},
			goal{prefix + "p99 relative to baseline", false, 1.10, compare(many, nameMsgpush, "p99", nameBaseline)},
			goal{prefix + "dials relative to baseline", false, 1, compare(many, nameMsgpush, "dials", nameBaseline)},
		)
	}
	goals = append(goals, goal{
		fmt.Sprintf("%d callers, GOAWAY every %d requests: p99 relative to baseline", goawayCallers, goawayRequests),
		false, 1.20, compare(s.goaway, nameMsgpush, "p99", nameBaseline),
	})
	return append(
		goals,
		goal{
			"iteration: time with Prefetch(0) relative to Prefetch(8)",
			true,
			6.5,
			compare(s.iteration, prefetchName(0), "time", prefetchName(8)),
		},
		goal{"following: " + requestsPerPoll, false, 1, s.follow.entry(followName).median(requestsPerPoll)},
		goal{"a million records: bytes held per record", false, 1, s.memory.entry(withIDs).median(heldPerRecord)},
		goal{
			"a million records without ids: bytes held per record",
			false,
			1,
			s.memory.entry(withoutIDs).median(heldPerRecord),
		},
		goal{"growth: deviation of the time per page between the two longest lists", false, 0.10, s.nonlinearity()},
	)
}

// fastestOther returns the time of the fastest client of another package, relative to msgpush.
func fastestOther(e *experiment) float64 {
	var others []float64
	for _, c := range clients() {
		if !c.isMsgpush && c.name != nameBaseline && c.name != nameTwice {
			others = append(others, e.entry(c.name).ratio("time", e.entry(nameMsgpush)).Center)
		}
	}
	return slices.Min(others)
}

// nonlinearity returns the relative difference in time per page between the longest
// and the second longest iteration.
func (s *suite) nonlinearity() float64 {
	last := len(s.growth) - 1
	longest, shorter := s.growth[last].entry(withIDs), s.growth[max(0, last-1)].entry(withIDs)
	return math.Abs(longest.ratio(timePerPage, shorter).Center - 1)
}
