package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// unknown is the total of a bar that shows no time left.
const unknown = -1

// A progress is a bar with the number of records, the rate and the time left.
type progress struct {
	bar  *progressbar.ProgressBar
	done int64
}

// newProgress shows a bar without a total, which add sets.
func newProgress(w io.Writer) *progress {
	p := &progress{bar: progressbar.NewOptions64(unknown,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("records"),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("records"),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetSpinnerChangeInterval(0), // otherwise a goroutine redraws the bar
	)}
	_ = p.bar.RenderBlank() // the export does not depend on its bar
	return p
}

// add counts the records of a page. total is the reported total of the list. It may change from
// page to page. A total below the number of records read so far counts as unknown.
func (p *progress) add(records int, total int64) {
	p.done += int64(records)
	if total < p.done {
		total = unknown
	}
	p.bar.ChangeMax64(total)
	_ = p.bar.Set64(p.done)
}

// clear removes the bar, so that a message can use its line.
func (p *progress) clear() { _ = p.bar.Clear() }
