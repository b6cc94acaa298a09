package msgpush

import (
	"cmp"
	"fmt"
	"time"
)

// A RetryPolicy sets how often a call is attempted and how long it waits between two attempts. A zero field
// means its default.
//
// The wait before a retry is random, so that callers do not retry at the same time. Before the first retry,
// it is between MinWait and twice MinWait. Both bounds double with each retry, until the wait is between half
// of MaxWait and MaxWait. It is never shorter than MinWait, or longer than MaxWait. A Retry-After header adds
// the wait that it requests. docs/reliability.md has a table of the waits, and the rules for Retry-After and
// for a near deadline.
//
// These failures are retryable, unless the key was rejected:
//
//   - There was no response, or a response with HTTP 2xx was incomplete or its JSON ends too early.
//   - The HTTP status is 408, 425, 429, 500, 502, 503, 504, 520 to 524, 529 or 530. A 500 with an error
//     envelope is not retryable, since the service itself has responded.
//   - The code of the envelope is one of [WithRetryableCodes].
//
// Failures that would recur, such as an untrusted certificate, are not retryable.
//
// A negative field other than Quota is an error. If only one of MinWait and MaxWait is set, the default of
// the other is adjusted so that MinWait ≤ MaxWait.
type RetryPolicy struct {
	// MaxAttempts is the maximum number of attempts of a call, not counting the one after the replacement
	// of a rejected access key. The default is 5; 1 disables retries.
	MaxAttempts int
	// MinWait is the shortest wait. The default is 200 ms.
	MinWait time.Duration
	// MaxWait is the longest wait. If a Retry-After header requests a longer one, the call returns its
	// failure immediately. The default is 30 s.
	MaxWait time.Duration
	// Quota is the number of retries that all calls of the client share, so that retries do not multiply
	// the load of an outage. A retry uses one up, and each attempt that succeeds gives one back. When none
	// is left, a call returns its failure immediately.
	//
	// 0 means 8 times the highest number of calls that ran at the same time, but at least 1,000. A negative
	// Quota means no limit.
	Quota int
}

var defaultRetryPolicy = RetryPolicy{MaxAttempts: 5, MinWait: 200 * time.Millisecond, MaxWait: 30 * time.Second}

// withDefaults returns the policy with the defaults of MaxAttempts, MinWait and MaxWait.
func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.MaxAttempts < 0 || p.MinWait < 0 || p.MaxWait < 0 {
		return p, fmt.Errorf("%+v has a negative MaxAttempts, MinWait or MaxWait", p)
	}
	if p.MaxWait > 0 && p.MinWait > p.MaxWait {
		return p, fmt.Errorf("MinWait, %v, is greater than MaxWait, %v", p.MinWait, p.MaxWait)
	}
	p.MaxAttempts = cmp.Or(p.MaxAttempts, defaultRetryPolicy.MaxAttempts)
	p.MaxWait = cmp.Or(p.MaxWait, max(defaultRetryPolicy.MaxWait, p.MinWait))
	p.MinWait = cmp.Or(p.MinWait, min(defaultRetryPolicy.MinWait, p.MaxWait/2))
	return p, nil
}
