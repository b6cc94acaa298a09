//go:build linux

package integration

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
)

// Two loads use the same client and thus the same connections. The calls of one are
// cancelled at random, which must not affect the calls of the other.
func TestCancelledCallsDoNotAffectOthers(t *testing.T) {
	for name, tls := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			// Without proxy_ignore_client_abort, nginx would close a connection to
			// the fake server for each cancelled call and run out of ports.
			startNginx(s,
				scenario{tls: tls, config: `proxy_http_version 1.1; proxy_set_header Connection ""; proxy_ignore_client_abort on;`})
			client := newClient(t, s.url, s.server)
			s.load = load{calls: 2000, callers: 8}.withDefaults()
			cancelled := load{calls: 6000, callers: 16}.withDefaults()

			var r report
			var wrongErrors atomic.Int64
			others := s.run(client, func(s *setup) {
				r = cancelled.run(s.Context(), cancellingAPI{client, &wrongErrors}, s.records, new(atomic.Int64))
			})
			t.Logf("cancelled:  %v", r)
			t.Logf("others:     %v", others)
			s.check(others)
			assert.Zero(t, others.failed(), others.firstErrors)
			assert.Zero(t, r.wrong)
			assert.Equal(t, cancelled.calls, r.succeeded+r.request, "a call succeeds or fails with a RequestError: %v", r)
			assert.Zero(t, wrongErrors.Load(), "errors that are not context.Canceled: %q", r.firstErrors)
			assert.NotZero(t, r.request, "calls that were cancelled")
			assert.NotZero(t, r.succeeded, "calls that were cancelled too late")
		})
	}
}

// A cancellingAPI cancels each call after a random time.
type cancellingAPI struct {
	client      *msgpush.Client
	wrongErrors *atomic.Int64 // other than context.Canceled
}

func (c cancellingAPI) MailDetail(ctx context.Context, mailID string) (*msgpush.MailChannel, error) {
	ctx, cancel := cancelAtRandom(ctx)
	defer cancel()
	mail, err := c.client.MailDetail(ctx, mailID)
	c.check(err)
	return mail, err
}

func (c cancellingAPI) ForwardLogList(
	ctx context.Context,
	r msgpush.ForwardLogRequest,
) (*msgpush.Page[msgpush.ForwardLog], error) {
	ctx, cancel := cancelAtRandom(ctx)
	defer cancel()
	page, err := c.client.ForwardLogList(ctx, r)
	c.check(err)
	return page, err
}

func (c cancellingAPI) check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		c.wrongErrors.Add(1)
	}
}

// cancelAtRandom cancels a context after 0.25 ms to 4 s, so that some calls are cancelled
// in each of their phases however fast the machine is.
func cancelAtRandom(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(time.Duration(math.Exp2(rand.Float64()*14)*float64(250*time.Microsecond)), cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}
