package follow_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

func TestOutcomeNamesErrorsOfThisPackage(t *testing.T) {
	assert.Equal(t, "success", follow.Outcome(nil))
	for err, want := range map[error]string{
		follow.ErrMissing:                     "records_missing",
		follow.ErrStore:                       "store_failed",
		follow.ErrReplaced:                    "replaced",
		follow.ErrHangs:                       "hangs",
		&msgpush.APIError{HTTPStatus: 503}:    "http_5xx",
		&msgpush.RequestError{Err: errFailed}: "no_response",
		&msgpush.APIError{KeyRejected: true}:  "key_rejected",
		errFailed:                             "other",
	} {
		assert.Equal(t, want, follow.Outcome(fmt.Errorf("of a program: %w", err)))
	}
}

func TestOutcomeOfAPageIsThatOfItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(50, 1)}
		r, _ := startOn(t, s)
		s.setFail(failFrom(1, &msgpush.APIError{HTTPStatus: 503}))
		wait(time.Minute)
		require.NotEmpty(t, r.errors())
		assert.Equal(t, "http_5xx", follow.Outcome(r.errors()[0]))
		assert.Equal(t, "http_5xx", follow.Outcome(r.Status().Check(time.Second)))
	})
}
