package call

import (
	"errors"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
)

// prepare gets the access key of the next attempt, waits for a slot of the rate limiter, and gets the key
// again. It returns the final failure of the call if it must end before that attempt. The wait before a retry
// has ended already, so that the call takes a slot no sooner than it needs it.
//
// It gets the key before the wait, so that a call whose key is being fetched takes no slot of the limiter. It
// gets the key again after the wait, since the key may have been replaced meanwhile.
func (c *Caller) prepare(s *state) (final *Failure) {
	if !s.hasNextKey {
		final = c.nextKey(s)
	}
	s.hasNextKey = false
	if final == nil && c.Limiter != nil {
		final = c.getSlot(s)
	}
	if final == nil && s.endErr() != nil { // the key or the slot may have come after the end of the call
		return s.ended("")
	}
	return final
}

// getSlot waits for a slot, gets the key again and, if that makes the slot stale, waits for another one.
//
// If getting the key takes long and returns another one, many calls may have waited for it, and would now
// send at the same time. So the call waits for a second slot. It then sends the key that it has: getting the
// key once more could take long again.
func (c *Caller) getSlot(s *state) (final *Failure) {
	if final := c.waitForSlot(s); final != nil {
		return final
	}
	before, begin := s.key, time.Now()
	if final := c.nextKey(s); final != nil {
		return final
	}
	if s.key != before && time.Since(begin) >= staleAfter {
		return c.waitForSlot(s)
	}
	return nil
}

// staleAfter is the time after which a slot of the rate limiter is stale. A source that returns a key in less
// time has not fetched it.
const staleAfter = 50 * time.Millisecond

func (c *Caller) waitForSlot(s *state) (final *Failure) {
	const step = "waiting for the rate limiter: "
	err := c.Limiter.Wait(s.ctx)
	switch {
	case err == nil:
		return nil
	case s.endErr() != nil: // the reason, also if the limiter returns another error
		return s.ended(step)
	}
	return s.stopped(step, err)
}

// nextKey sets the key of the next attempt to the key of the source. If the source returns the rejected key
// again, the final failure is the one of the latest attempt, usually the rejection, which says more.
func (c *Caller) nextKey(s *state) (final *Failure) {
	const step = "access key: "
	if s.endErr() != nil {
		return s.ended("")
	}
	begin := time.Now()
	key, err := c.fetchKey(s)
	ended := s.endErr()
	switch {
	case err == nil && s.hasReplacedKey() && key == s.rejectedKey: // s.last is the rejection
		remark := "the key source has no other key"
		if wait := time.Since(begin); wait >= time.Second {
			remark += ", after " + wait.Round(time.Second).String()
		}
		s.last.remark(remark)
		return s.last
	case ended != nil && (err == nil || s.isOfContext(err)):
		return s.ended(step)
	case err != nil:
		return s.stopped(step, errs.Hide(err.Error(), errors.Join(c.ErrNoAccessKey, err, ended)))
	}
	s.key = key
	return nil
}

// fetchKey gets a key from the source, and checks it.
func (c *Caller) fetchKey(s *state) (string, error) {
	key, err := c.Source(s.ctx, s.rejectedKey)
	isKnown := s.keys.Has(key) // and has been checked
	if err == nil && !isKnown {
		err = httpspec.CheckKey("the key", key)
	}
	s.keys.Add(key) // also after an error, whose text may contain it
	return key, err
}
