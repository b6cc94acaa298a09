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
	for err, want := range map[error]string{
		follow.ErrMissing:    "records_missing",
		follow.ErrUnreadable: "record_unreadable",
		follow.ErrStore:      "store_failed",
		follow.ErrReplaced:   "replaced",
		follow.ErrHangs:      "hangs",
		follow.ErrSlow:       "slow",
	} {
		assert.Equal(t, want, msgpush.Outcome(fmt.Errorf("of a program: %w", err)))
	}
}

func TestOutcomeOfAPageIsThatOfItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{list: numbers(50, 1)}
		r, _ := startOn(t, s)
		s.setFail(failFrom(1, &msgpush.APIError{HTTPStatus: 503}))
		wait(time.Minute)
		require.NotEmpty(t, r.errors())
		assert.Equal(t, "http_5xx", msgpush.Outcome(r.errors()[0]))
		assert.Equal(t, "http_5xx", msgpush.Outcome(r.Status().Check(time.Second)))
	})
}
