package msgpush

import (
	"cmp"
	"fmt"
	"time"
)

// A RetryPolicy sets how often a call is attempted and how long it waits between two attempts. A
// zero field means its default. A negative field other than Quota is an error. If only one of
// MinWait and MaxWait is set, the default of the other is adjusted so that MinWait ≤ MaxWait.
//
// The bound of the wait before the n-th retry is MinWait·2ⁿ⁻¹, at most MaxWait; the wait is random
// between half the bound and the bound. Retry-After adds the wait that it requests; a 429 without a
// valid one adds 1 s, but at most MaxWait. If the wait would end after the deadline of the context,
// the call returns its failure immediately.
//
// A failure is retryable if there was no response, if an HTTP 200 response was incomplete or its
// JSON ends too early, or if the HTTP status is 408, 425, 429, 500, 502, 503 or 504 and the key was
// not rejected; see [WithRetryableCodes]. Failures that would recur, such as an untrusted
// certificate, are not retryable; docs/reliability.md lists them.
type RetryPolicy struct {
	// MaxAttempts is the maximum number of attempts of a call, not counting the one after the
	// replacement of a rejected access key. The default is 7; 1 disables retries.
	MaxAttempts int
	// MinWait is the bound of the first wait, which is at least MinWait/2. The default is 400 ms.
	MinWait time.Duration
	// MaxWait limits the bound of every wait. If Retry-After requests more, the call fails
	// immediately. The default is 30 s.
	MaxWait time.Duration
	// Quota limits the failed retries of all calls of the client, so that retries do not multiply
	// the load of an outage. When it is used up, a call returns its failure immediately. The
	// default fits most programs: 8 × the highest number of calls that ran at the same time, at
	// least 1,000. A negative Quota means no limit. docs/reliability.md states how it recovers.
	Quota int
}

var defaultRetryPolicy = RetryPolicy{MaxAttempts: 7, MinWait: 400 * time.Millisecond, MaxWait: 30 * time.Second}

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
	p.MinWait = cmp.Or(p.MinWait, min(defaultRetryPolicy.MinWait, p.MaxWait))
	return p, nil
}
