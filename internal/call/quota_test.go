package call

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// takeAll takes tokens until there are none.
func takeAll(q *quota) (n int) {
	for q.take() {
		n++
	}
	return n
}

func TestQuotaIsBucketOfItsSize(t *testing.T) {
	q := newQuota(3)
	assert.Equal(t, 3, takeAll(q))
	q.giveBack()
	assert.Equal(t, 1, takeAll(q))
	for range 10 {
		q.giveBack()
	}
	assert.Equal(t, 3, takeAll(q), "no more than its size")
	for range 10 {
		q.begin()
	}
	assert.Zero(t, takeAll(q), "a fixed size does not grow")
}

func TestDefaultQuotaGrowsWithConcurrentCalls(t *testing.T) {
	q := newQuota(0)
	for range 125 {
		q.begin()
	}
	assert.Equal(t, 1000, takeAll(q))
	q.begin()
	assert.Equal(t, 8, takeAll(q), "the bucket gets the difference")
	q.end()
	q.begin()
	assert.Zero(t, takeAll(q), "only a new maximum adds tokens")
	for range 5000 {
		q.giveBack()
	}
	assert.Equal(t, 126*8, takeAll(q))
}

func TestNegativeQuotaIsNeverUsedUp(t *testing.T) {
	q := newQuota(-1)
	q.begin()
	for range 1_000_000 {
		if !q.take() {
			t.Fatal("used up")
		}
	}
	assert.Equal(t, math.MaxInt, q.size)
}
