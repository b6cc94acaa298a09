package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// unknown is the total of a bar that shows no time left.
const unknown = -1

// newBar shows a bar with the number of records, the rate and the time left. showProgress sets its total.
func newBar(w io.Writer) *progressbar.ProgressBar {
	bar := progressbar.NewOptions64(unknown,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("records"),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("records"),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetSpinnerChangeInterval(0), // otherwise a goroutine redraws the bar
	)
	_ = bar.RenderBlank() // the export does not depend on its bar
	return bar
}

// showProgress adds the records of a page. total is the reported total of the list. It may change from page
// to page. A total below the number of records read so far counts as unknown.
func showProgress(bar *progressbar.ProgressBar, records int, total int64) {
	done := bar.State().CurrentNum + int64(records)
	if total < done {
		total = unknown
	}
	bar.ChangeMax64(total)
	_ = bar.Set64(done)
}
