package call

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestContextOfRequestHasTheOperationAndTheValuesOfTheCaller(t *testing.T) {
	type key struct{}
	c, s, _ := newStep(t)
	c.begin(context.WithValue(t.Context(), key{}, "value"), s)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	assert.Equal(t, "Test", OperationFromContext(ctx))
	assert.Equal(t, "value", ctx.Value(key{}))
	assert.Empty(t, OperationFromContext(t.Context()))
}
