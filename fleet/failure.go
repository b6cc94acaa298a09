package fleet

import (
	"errors"
	"fmt"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
)

// A fetchError is the error of a fetch that failed.
type fetchError struct {
	error
	key string // that Fetch returned with the error, which may quote it: the client redacts it
}

func (e *fetchError) Unwrap() error { return e.error }

// checkFetched returns the failure of a fetch that returned err, or a key that cannot be used. It
// returns nil if the key can be used.
func checkFetched(r record, err error) error {
	if err == nil {
		err = httpspec.CheckKey("the returned key", r.key)
	}
	if err == nil && !r.valid() {
		const format = "the returned key has expired (the clock of this replica shows %s)"
		err = fmt.Errorf(format, time.Now().UTC().Format(time.RFC3339))
	}
	if err == nil {
		return nil
	}
	return &fetchError{error: fmt.Errorf("fleet: Fetch: %w", err), key: r.key}
}

// report calls OnError with the failure of a fetch.
func (s *KeySource) report(failure error) {
	var keys redact.Keys
	if f, ok := errors.AsType[*fetchError](failure); ok {
		keys.Add(f.key)
	}
	keys.Add(s.state.get().current.key)
	s.cfg.OnError(errs.Hide("access key: "+keys.Text(failure.Error()), failure, nil))
}

// reportOther is OnError of the cache. It ignores the failures of fetches of this replica, which
// have been reported.
func (s *KeySource) reportOther(err error) {
	_, isReported := errors.AsType[*fetchError](err)
	if !isReported {
		s.cfg.OnError(err)
	}
}
