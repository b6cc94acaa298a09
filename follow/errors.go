package follow

import (
	"errors"
	"fmt"
)

// ErrReplaced is returned by the function store of [Follower.Run] if the stored position is not Previous of the
// batch: another process has stored a batch, or this one is stored already. Run loads the position then. OnError gets
// the error only if the position has not changed.
var ErrReplaced = errors.New("the stored position has changed")

// ErrMissing is wrapped by the error for records that were not delivered, or may not have been.
var ErrMissing = errors.New("records are missing")

// ErrStore is wrapped by the error of [Options].OnError for an error of load or store.
var ErrStore = errors.New("the store failed")

// ErrUnreadable is wrapped by the error of [Options].OnError for a record that fails when only it is requested. It is
// left out of its page, and delivered if it can be read later.
var ErrUnreadable = errors.New("cannot be read")

// ErrHangs is wrapped by the error of [Status.Check] if no step has ended for longer than its limit: a
// request, load or store does not return, or Run was not called or has returned. Restart the program.
var ErrHangs = errors.New("no step has ended")

const prefix = "msgpush: following a list: "

// errorf returns an error of this package.
func errorf(format string, args ...any) error { return fmt.Errorf(prefix+format, args...) }
