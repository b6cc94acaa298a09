package call

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/transport"
)

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
// If the client got a response since the attempt began, the service is only slow. And once the idle
// connections are closed, closing them again is of no use before the next response: other clients may
// share the transport.
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

// read completes o with the response. ctx has the timeout of the attempt.
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
