package msgpush_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestErrorOfCallSaysWhetherTheCallMaySucceedLater(t *testing.T) {
	unknownHost := &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}
	limiter := fixtures.LimiterFunc(func(context.Context) error { return errors.New("no slot") })
	for name, tt := range map[string]struct {
		response fixtures.RoundTripFunc
		option   msgpush.Option
		want     bool
	}{
		"HTTP 503":             {response: fixtures.Status(503), want: true},
		"HTTP 404":             {response: fixtures.Status(404), want: false},
		"truncated JSON":       {response: fixtures.Respond(200, `{"code":`), want: true},
		"invalid JSON":         {response: fixtures.Respond(200, `<html>`), want: false},
		"reset connection":     {response: fixtures.Fail(errors.New("reset")), want: true},
		"unknown host":         {response: fixtures.Fail(unknownHost), want: true},
		"body over the limit":  {response: fixtures.Succeed, option: msgpush.WithMaxResponseBytes(1), want: false},
		"timeout of the call":  {response: fixtures.NoResponse, option: msgpush.WithTimeout(time.Second), want: true},
		"error of the limiter": {response: fixtures.Succeed, option: msgpush.WithRateLimiter(limiter), want: true},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			options := []msgpush.Option{fixtures.DefaultRetries}
			if tt.option != nil {
				options = append(options, tt.option)
			}
			_, err := fixtures.NewClient(t, tt.response, options...).MailDetail(t.Context(), "7")
			assert.Equal(t, tt.want, isRetryable(t, err), "%v", err)
		})
	}
}

func isRetryable(t *testing.T, err error) bool {
	t.Helper()
	switch e := err.(type) { //nolint:errorlint // the methods of Client do not wrap them
	case *msgpush.APIError:
		return e.Retryable
	case *msgpush.DecodeError:
		return e.Retryable
	case *msgpush.RequestError:
		return e.Retryable
	}
	t.Errorf("%T is no error of a call", err)
	return false
}
