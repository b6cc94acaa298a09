package follow

import (
	"errors"

	"example.com/msgpush"
)

// Outcome returns the kind of an error of [Options].OnError, [Status.Check] or [Follower.Run] as a label for
// metrics. It is that of [msgpush.Outcome], except for the errors of this package.
//
//   - "records_missing": [ErrMissing]
//   - "record_unreadable": [ErrUnreadable]
//   - "store_failed": [ErrStore]
//   - "replaced": [ErrReplaced]
//   - "hangs": [ErrHangs]
func Outcome(err error) string {
	switch {
	case errors.Is(err, ErrMissing):
		return "records_missing"
	case errors.Is(err, ErrUnreadable):
		return "record_unreadable"
	case errors.Is(err, ErrStore):
		return "store_failed"
	case errors.Is(err, ErrReplaced):
		return "replaced"
	case errors.Is(err, ErrHangs):
		return "hangs"
	}
	return msgpush.Outcome(err)
}
