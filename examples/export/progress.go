package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows on a terminal how far a walk has come, how fast it is, and how
// long it has still to go.
type progress struct {
	terminal *os.File // nil shows nothing
	bar      *progressbar.ProgressBar
	done     int64
}

// newProgress returns a progress that is shown on f if that is a terminal.
func newProgress(f *os.File) *progress {
	if f == nil || !term.IsTerminal(int(f.Fd())) {
		return &progress{}
	}
	return &progress{terminal: f}
}

// add adds a page of records to what is done, of a list with so many in all.
func (p *progress) add(records int, total int64) {
	if p.terminal == nil {
		return
	}
	p.done += int64(records)
	limit := max(total, p.done) // the list may have shrunk
	if total == 0 {
		limit = -1 // the service does not tell
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(limit,
			progressbar.OptionSetWriter(p.terminal),
			progressbar.OptionSetDescription("records"),
			progressbar.OptionShowCount(),
			progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("records"),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetSpinnerChangeInterval(0), // no goroutine of its own
			progressbar.OptionFullWidth(),
		)
	}
	if limit != p.bar.GetMax64() {
		p.bar.ChangeMax64(limit)
	}
	_ = p.bar.Add(records) // a terminal that is gone is no reason to stop
}

// clear takes the bar off the terminal, so that a message has the line.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
