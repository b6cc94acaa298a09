package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progressBar shows the number of records, the rate and the remaining time on a terminal.
type progressBar struct {
	terminal *os.File // nil shows nothing
	bar      *progressbar.ProgressBar
	done     int64
}

// newProgressBar returns a progress bar, which writes to f if f is a terminal.
func newProgressBar(f *os.File) *progressBar {
	if f == nil || !term.IsTerminal(int(f.Fd())) {
		return &progressBar{}
	}
	return &progressBar{terminal: f}
}

// add counts the records of a page. total is the number of records in the list.
func (p *progressBar) add(records int, total int64) {
	if p.terminal == nil {
		return
	}
	p.done += int64(records)
	limit := max(total, p.done) // records may have been deleted
	if total == 0 {
		limit = -1 // unknown
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
			progressbar.OptionSetSpinnerChangeInterval(0), // starts no goroutine
			progressbar.OptionFullWidth(),
		)
	}
	if limit != p.bar.GetMax64() {
		p.bar.ChangeMax64(limit)
	}
	_ = p.bar.Add(records) // an export does not depend on its bar
}

// clear removes the bar, so that a message can use its line.
func (p *progressBar) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
