package follow

import (
	"fmt"

	"example.com/msgpush/internal/errs"
)

// ErrReplaced is returned by the function store of [Follower.Run] if the stored position is not Previous
// of the batch: another process has stored a batch, or this one is stored already. Run loads the position
// then. OnError gets the error only if the position has not changed.
var ErrReplaced = errs.NewLabeled("the stored position has changed", "replaced")

// ErrMissing is wrapped by the error for records that were not delivered, or may not have been.
var ErrMissing = errs.NewLabeled("records are missing", "records_missing")

// ErrStore is wrapped by the error of [Options].OnError for an error of load or store.
var ErrStore = errs.NewLabeled("the store failed", "store_failed")

// ErrUnreadable is wrapped by the error of [Options].OnError for a record that fails when only it is
// requested. It is left out of its page, and delivered if it can be read later, while fewer than Window
// known records stand above it.
var ErrUnreadable = errs.NewLabeled("cannot be read", "record_unreadable")

// ErrHangs is wrapped by the error of [Status.Check] if no step has ended for longer than its limit: a
// request, load or store does not return, or Run was not called or has returned. Restart the program.
var ErrHangs = errs.NewLabeled("no step has ended", "hangs")

// ErrSlow is wrapped by the error of [Status.Check] if a poll takes longer than its limit: the list may grow
// faster than it can be read. Larger pages may help.
var ErrSlow = errs.NewLabeled("the poll has not ended", "slow")

const prefix = "msgpush: following a list: "

// errorf returns an error of this package.
func errorf(format string, args ...any) error { return fmt.Errorf(prefix+format, args...) }
