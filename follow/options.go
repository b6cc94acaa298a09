package follow

import "time"

// Options configure a [Follower]. The zero value has the defaults.
type Options struct {
	// PollInterval is the wait after a poll. It is up to 10 % shorter or longer, at random. 0 means 10 s.
	// It is at most a year. While the newest page fails, it is requested again after 10 s, or PollInterval if
	// that is shorter, and then after waits that double up to a minute.
	PollInterval time.Duration
	// SweepInterval is the time from one sweep to the next. A record that appears behind newer ones is
	// delivered by the next sweep. 0 means 10 min.
	SweepInterval time.Duration
	// Window is how many known records may stand above a new one when a sweep sees it. It should be more
	// than the number of records that come within the sum of SweepInterval and the longest delay of a late
	// record. 0 means 200. It is at most 1,000,000.
	Window int
	// OnError is called with each error after which Run goes on, in the goroutine of Run. nil logs the
	// error at level Warn with [slog.Default].
	OnError func(error)
}

// check returns an error if a number is negative or too large.
func (o Options) check() error {
	switch {
	case o.PollInterval < 0:
		return errorf("PollInterval is negative: %v", o.PollInterval)
	case o.PollInterval > maxInterval:
		return errorf("PollInterval is longer than a year: %v", o.PollInterval)
	case o.SweepInterval < 0:
		return errorf("SweepInterval is negative: %v", o.SweepInterval)
	case o.Window < 0:
		return errorf("Window is negative: %d", o.Window)
	case o.Window > maxWindow:
		return errorf("Window is greater than %d: %d", maxWindow, o.Window)
	}
	return nil
}
