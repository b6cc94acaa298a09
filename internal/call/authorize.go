package call

import (
	"errors"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
)

// authorize gets the access key of an attempt, waits for a slot of the rate limiter, and gets the
// key again.
//
// It gets the key before the wait, so that a call whose key is being fetched takes no slot of the
// limiter. It gets the key again after the wait, since the key may have been replaced meanwhile.
//
// If that takes long and returns another key, many calls may have waited for it, and would now send
// at the same time. So the call waits for a second slot. It then sends the key that it has: getting
// the key once more could take long again.
func (c *Caller) authorize(s *state) error {
	hasNextKey := s.last != nil && s.last.KeyRejected // replaceKey has got it
	if !hasNextKey {
		if err := c.nextKey(s); err != nil {
			return err
		}
	}
	if c.Limiter == nil {
		return nil
	}
	return c.getSlot(s)
}

// getSlot waits for a slot, gets the key again and, if that makes the slot stale, waits for another one.
func (c *Caller) getSlot(s *state) error {
	if err := c.waitForSlot(s); err != nil {
		return err
	}
	before, begin := s.key, time.Now()
	if err := c.nextKey(s); err != nil {
		return err
	}
	isSlotStale := s.key != before && time.Since(begin) >= staleAfter
	if isSlotStale {
		return c.waitForSlot(s)
	}
	return nil
}

// staleAfter is the time after which a slot of the rate limiter is stale. A source that returns a
// key in less time has not fetched it.
const staleAfter = 50 * time.Millisecond

func (c *Caller) waitForSlot(s *state) error {
	if err := c.Limiter.Wait(s.ctx); err != nil {
		return &stopError{"waiting for the rate limiter: ", err}
	}
	return nil
}

// ErrNoAccessKey is msgpush.ErrNoAccessKey.
var ErrNoAccessKey = errors.New("msgpush: no access key")

// nextKey sets the key of the next attempt to the key of the source. It returns errSameKey if
// the source returns the rejected key again.
func (c *Caller) nextKey(s *state) error {
	if s.endErr() != nil {
		return contextEnded
	}
	key, err := c.Source(s.ctx, s.rejectedKey)
	isKnown := s.keys.Has(key) // and has been checked
	if err == nil && !isKnown {
		err = httpspec.CheckKey("the key", key)
	}
	s.keys.Add(key) // also after an error, whose text may contain it
	if err != nil {
		err = errs.Hide(err.Error(), errors.Join(ErrNoAccessKey, err), nil)
	}
	if err != nil || s.endErr() != nil {
		return &stopError{"access key: ", err}
	}
	if key == s.rejectedKey {
		return errSameKey
	}
	s.key = key
	return nil
}
