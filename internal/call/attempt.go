package call

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
	"example.com/msgpush/internal/transport"
)

// An Attempt is an attempt that has ended.
type Attempt struct {
	Request  Request
	Number   int
	Start    time.Time
	Duration time.Duration
	Outcome  *Outcome
	End      *Outcome      // how the call ends; nil if another attempt follows after Wait
	Wait     time.Duration // without the waits for the access key and the rate limiter
}

// A state is that of one call. The attempts share it. It is the transport of the loop of
// go-retryablehttp: RoundTrip makes an attempt, and decides whether and when the loop calls it
// again.
type state struct {
	*Caller
	loop    retryablehttp.Client
	client  http.Client // of the loop
	request Request
	query   string      // of the request, which may contain secrets
	keys    redact.Keys // that the call got

	attempts    int           // that began
	key         string        // of the current attempt
	rejectedKey string        // the key that the source had to replace; empty: none
	lastFailure *Outcome      // the latest failure that was not caused by the end of the context
	borrowed    int           // tokens that the quota gets back unless the retry fails transiently
	wait        time.Duration // before the next attempt; 0 if it begins immediately
	end         *Outcome      // how the call ends; nil if another attempt follows
}

// RoundTrip makes one attempt. req has no header yet. The loop always gets the same response.
func (s *state) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	s.key, s.end = s.ready(ctx)
	if s.end != nil {
		return loopResponse, nil
	}
	timeLeft := errs.TimeLeft(ctx)
	if timeLeft <= 0 {
		s.end = s.stop(ctx, "", nil)
		return loopResponse, nil
	}
	s.attempts++
	start := time.Now()
	o := s.send(ctx, req, timeLeft)
	s.end = s.decide(ctx, o)
	if s.Report != nil {
		s.Report(ctx, Attempt{
			Request:  s.request,
			Number:   s.attempts,
			Start:    start,
			Duration: time.Since(start),
			Outcome:  o,
			End:      s.end,
			Wait:     s.wait,
		})
	}
	return loopResponse, nil
}

var loopResponse = &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

func (s *state) checkRetry(context.Context, *http.Response, error) (bool, error) {
	return s.end == nil, nil
}

func (s *state) backoff(time.Duration, time.Duration, int, *http.Response) time.Duration {
	return s.wait
}

// outcome returns the start of an outcome.
func (s *state) outcome() *Outcome {
	return &Outcome{Operation: s.request.Operation, Attempts: s.attempts, Query: s.query, Keys: &s.keys}
}

// stop returns how the call ends without another attempt, because of err or because its context has
// ended. step, which may be empty, names the step of the call.
func (s *state) stop(ctx context.Context, step string, err error) *Outcome {
	o := s.outcome()
	o.Kind, o.Step, o.Cause, o.Previous = NoResponse, step, err, s.lastFailure
	if errs.ContextEnded(ctx) {
		o.Cause = errs.WithCause(ctx)
	}
	return o
}

// ready returns the access key for an attempt, after a wait for the rate limiter, or how
// the call ends.
//
// It gets the key before the wait, so that a call whose key is being fetched takes no
// slot of the limiter, and so that the source learns of a rejection immediately. It gets the
// key again after the wait. If that is another key, the source may have blocked until it was
// fetched, and then released many calls, which would send together: the call waits for another
// slot.
//
// A source may return another key each time. So after ten repeated waits, ready keeps its slot,
// and the key that it got before the last wait: getting the key again could take long.
func (s *state) ready(ctx context.Context) (key string, end *Outcome) {
	key, end = s.nextKey(ctx)
	if end != nil || s.Limiter == nil {
		return key, end
	}
	for repeats := 0; ; repeats++ {
		if err := s.Limiter.Wait(ctx); err != nil {
			return "", s.stop(ctx, "waiting for the rate limiter: ", err)
		}
		if repeats == maxRepeatedWaits {
			return key, nil
		}
		before := key
		key, end = s.nextKey(ctx)
		if end != nil || key == before {
			return key, end
		}
	}
}

const maxRepeatedWaits = 10

// nextKey gets the access key from its source. If the source returns the rejected key again, the call
// ends with its last failure, and a remark that says so.
func (s *state) nextKey(ctx context.Context) (key string, end *Outcome) {
	if ctx.Err() != nil {
		return "", s.stop(ctx, "", nil)
	}
	key, err := s.Source(ctx, s.rejectedKey)
	if err == nil && !s.keys.Has(key) {
		err = httpspec.CheckHeaderValue("the key", key)
	}
	s.keys.Add(key)
	if err != nil || ctx.Err() != nil {
		return "", s.stop(ctx, "access key: ", err)
	}
	if key == s.rejectedKey {
		s.lastFailure.remark("the key source returned the rejected key again")
		return "", s.lastFailure
	}
	return key, nil
}

// send sends the request and reads the response, within the timeout of an attempt, and decodes
// the response. timeLeft is that of ctx.
func (s *state) send(ctx context.Context, req *http.Request, timeLeft time.Duration) *Outcome {
	if timeLeft > s.Timeout { // otherwise the context ends before the timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, s.timeoutErr)
		defer cancel()
	}
	conn := newConnection()
	req = req.WithContext(httptrace.WithClientTrace(ctx, &conn.trace))
	req.Header = s.newHeader(s.request, s.key)
	o := s.outcome()
	responsesBefore := s.responses.Load()
	resp, err := transport.RoundTrip(s.Transport, s.Jar, req) //nolint:bodyclose // read closes it
	if err != nil {
		s.closeForgotten(ctx, conn, responsesBefore)
		o.setLost("the request to "+s.Base.String()+" failed: ", s.timeoutOr(ctx, err))
		o.NotSent = !conn.used.Load() && transport.DialFailed(err)
		return o
	}
	s.responses.Add(1)
	s.read(ctx, resp, o)
	return o
}

// A connection is what net/http/httptrace reports of the connection of an attempt.
type connection struct {
	trace  httptrace.ClientTrace
	used   atomic.Bool // net/http had a connection, so the request may have been sent
	reused atomic.Bool // it was used for another request before
}

func newConnection() *connection {
	c := new(connection)
	c.trace.GotConn = c.got
	return c
}

func (c *connection) got(info httptrace.GotConnInfo) {
	c.used.Store(true)
	c.reused.Store(info.Reused)
}

// closeForgotten closes the idle connections after an attempt that timed out on a reused connection:
// a balancer may have forgotten the connection, and the idle ones too.
//
// If the client got a response since the attempt began, the service is only slow. Until the next response,
// the connections are closed once only: other clients may share the transport, and would lose theirs.
func (c *Caller) closeForgotten(ctx context.Context, conn *connection, responsesBefore int64) {
	timedOut := errs.Is(ctx.Err(), context.DeadlineExceeded)
	isSilent := c.responses.Load() == responsesBefore
	if !timedOut || !isSilent || !conn.reused.Load() {
		return
	}
	alreadyClosed := c.closedAt.Swap(responsesBefore) == responsesBefore
	if !alreadyClosed {
		(&http.Client{Transport: c.Transport}).CloseIdleConnections()
	}
}

// timeoutOr returns the error of the timeout if err is not nil and ctx ended by the timeout of the
// attempt, and err otherwise. Not every transport returns the cause of a context.
func (c *Caller) timeoutOr(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == c.timeoutErr { //nolint:errorlint // not an error that wraps it
		return c.timeoutErr
	}
	return err
}

// read completes o with the response. ctx ends with the timeout of the attempt, or before. Of a response
// with another status than 200, what can be read of the body is enough.
func (s *state) read(ctx context.Context, resp *http.Response, o *Outcome) {
	o.Status, o.Header = resp.StatusCode, resp.Header
	body, err := s.readBody(ctx, resp)
	if err == nil && !s.KeepsInput {
		defer buffers.Put(body) // not after an error: the reader of the body may still write to it
	}
	o.Size = body.Len()
	if o.Status != http.StatusOK {
		s.setFailure(o, body.Bytes(), nil)
		return
	}
	if err != nil {
		o.setLost("reading the response from "+s.Base.String()+": ", err)
		return
	}
	o.Data, err = s.request.Decode(body.Bytes(), s.Unmarshal, s.request.DataRequired)
	if err != nil {
		s.setFailure(o, body.Bytes(), err)
		return
	}
	o.Kind, o.IsEnvelope, o.Code = Success, true, CodeSuccess
}
