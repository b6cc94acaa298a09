package call

import (
	"fmt"
	"net/http"
	"time"
)

// An Attempt is what Report learns of an attempt. Its texts may contain secrets.
type Attempt struct {
	Progress // Attempts is the number of the attempt that is reported
	Start    time.Time
	Duration time.Duration
	Response *http.Response // nil: none; its body has been read
	Size     int            // of the body, as far as it was read
	Failure  *Failure       // of the attempt; nil: success
	Omitted  *Failure       // of a success; nil: nothing
	Final    *Failure       // of the call; nil: it succeeds, or another attempt follows
	Retry    bool           // another attempt follows, unless the call is stopped before
	Wait     time.Duration  // before that attempt
}

// checkRetry judges an attempt, reports it, and returns whether another attempt follows. If none follows a
// failure, it sets the final failure of the call.
func (c *Caller) checkRetry(s *state, resp *http.Response, err error) (retry bool) {
	resp, err = unwrapClient(resp, err) //nolint:bodyclose // readBody has read and closed it
	failure := c.judge(s, resp, err)
	duration := time.Since(s.start)
	s.wait, s.retryAt = 0, time.Time{}
	if failure == nil {
		c.quota.giveBack()
	} else {
		s.final = c.decide(s, failure)
	}
	c.report(s, failure, duration)
	return failure != nil && s.final == nil
}

func (c *Caller) report(s *state, failure *Failure, duration time.Duration) {
	if c.Report == nil {
		return
	}
	c.Report(s.ctx, Attempt{
		Progress: s.progress(),
		Start:    s.start,
		Duration: duration,
		Response: s.resp,
		Size:     s.size,
		Failure:  failure,
		Omitted:  s.omitted,
		Final:    s.final,
		Retry:    failure != nil && s.final == nil,
		Wait:     s.wait,
	})
}

// decide returns the final failure of the call after the failure f of an attempt, or nil if another attempt
// follows.
func (c *Caller) decide(s *state, f *Failure) (final *Failure) {
	hasEnded := s.endErr() != nil
	if hasEnded && f.Kind == NoResponse {
		return s.interrupted(f)
	}
	s.last = f
	if f.KeyRejected && !s.hasReplacedKey() && c.HasKeySource { // independent of the policy
		return c.replaceKey(s)
	}
	if !c.isRetryable(s, f) {
		return f
	}
	if hasEnded { // a failure that is not retried is returned even then
		return s.ended("")
	}
	wait, hasTime := c.drawWait(s, f.RequestedWait)
	if !hasTime {
		f.remark("no time for a retry before the deadline")
		return f
	}
	if !c.quota.take() {
		f.remark("the retry quota is used up")
		return f
	}
	s.wait, s.retryAt = wait, time.Now().Add(wait)
	return nil
}

// isRetryable reports whether the policy and the request allow a retry after the failure f. A remark says why
// not, unless f or the number of attempts shows it.
func (c *Caller) isRetryable(s *state, f *Failure) bool {
	if !f.Transient || s.counted() >= c.Retry.MaxAttempts {
		return false
	}
	if !s.spec.Idempotent && !f.DialFailed {
		f.remark("not retried, since the request is not idempotent")
		return false
	}
	if f.RequestedWait > c.Retry.MaxWait {
		f.remark(fmt.Sprintf("Retry-After is longer than MaxWait, %v", c.Retry.MaxWait))
		return false
	}
	return true
}

// replaceKey gets the key that replaces the rejected one, for the next attempt. It returns the final failure
// of the call if there is no other key. A request whose key was rejected counts as not processed.
func (c *Caller) replaceKey(s *state) (final *Failure) {
	s.rejectedKey, s.mayBeProcessed = s.key, false
	final = c.nextKey(s)
	s.hasNextKey = final == nil
	return final
}
