package fleet

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxCalls is the maximum number of calls of a command, which blocks the store while it runs.
const maxCalls = 10_000

// A queue holds the waiting calls of a limiter, and the slots that were taken for them. A slot
// belongs to no call until it begins. Then the call that has waited longest uses it. So if a call
// is cancelled, the calls after it move up.
type queue struct {
	discarded atomic.Int64 // see LimiterStats

	mu      sync.Mutex
	waiters list.List   // of *waiter, in the order of the calls
	slots   []time.Time // not used yet, ascending
	sending bool        // a goroutine takes slots for the waiters that have none
	timer   *time.Timer // runs advance when the first slot begins, if a call waits
	last    time.Time   // the latest slot that was taken
}

// A waiter is a call of Wait that waits for a slot. The mu of its queue guards its fields until
// done is closed.
type waiter struct {
	latest   time.Time     // its slot must not begin later, apart from the delay of the reply
	element  *list.Element // of waiters; nil if the call does not wait any more
	isBought bool          // a command took a slot for this call

	done  chan struct{} // closed when begin or err is set
	begin time.Time
	err   error
}

// maxWait returns how long a call can wait, at the time when its command is sent.
func (w *waiter) maxWait(sent time.Time) time.Duration { return max(w.latest.Sub(sent), 0) }

func newQueue() *queue {
	q := new(queue)
	q.timer = time.AfterFunc(noExpiry, q.advance)
	q.timer.Stop() // until serve sets it
	return q
}

// join adds a call. It reports whether the caller must start a goroutine that takes a slot for it.
// No goroutine is needed if a slot is left, such as the slot of a cancelled call, or if a
// goroutine already runs.
func (q *queue) join(w *waiter) (mustSend bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serve() // discards the slots that have begun while no call waited
	w.element = q.waiters.PushBack(w)
	n := q.waiters.Len()
	if n > len(q.slots) {
		mustSend = !q.sending
		q.sending = true
		return mustSend
	}
	slot := q.slots[n-1]
	if slot.After(w.latest) {
		q.end(w, budgetError(time.Until(slot), time.Until(w.latest)))
	}
	q.serve() // sets the timer
	return false
}

// cancel removes a call, so that the calls after it move up.
func (q *queue) cancel(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(w, context.Canceled)
	hasBegun := !w.begin.IsZero() // just before the call was cancelled
	if hasBegun {
		q.insert(w.begin)
	}
	q.serve()
}

// advance gives the slots that have begun to the first calls.
func (q *queue) advance() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serve()
}

// lastSlot returns the latest slot that was taken.
func (q *queue) lastSlot() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

// nextCommand returns the calls for which the next command takes slots, and the latest slot that
// was taken. If all calls have a slot, it returns no calls, and the goroutine that sends commands
// ends. Then join requests another goroutine when it is needed.
func (q *queue) nextCommand() (calls []*waiter, last time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sending = q.waiters.Len() > len(q.slots)
	if !q.sending {
		return nil, time.Time{}
	}
	next := q.waiters.Front()
	for range q.slots { // these slots are for the first calls
		next = next.Next()
	}
	for ; next != nil && len(calls) < maxCalls; next = next.Next() {
		calls = append(calls, next.Value.(*waiter))
	}
	return calls, q.last
}

// fail ends the calls of a command that failed.
func (q *queue) fail(calls []*waiter, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range calls {
		q.end(w, err)
	}
}

// assign adds the slots of a command, and ends the calls whose slots are too late. waits is the
// reply to the command: how long each call must wait from the time when the script ran. That was
// between sent and now:
//
//   - A slot is counted from now, so that no call uses it too early.
//   - last is counted from sent: the script gives no slots long before last, so a last that is too
//     late would leave slots unused.
func (q *queue) assign(calls []*waiter, sent time.Time, waits []any) {
	received := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range calls {
		wait := microseconds(waits[i])
		maxWait := w.maxWait(sent)
		// The script took no slot if wait is longer than maxWait. It compared whole microseconds.
		tookNoSlot := wait > maxWait.Truncate(time.Microsecond)
		if tookNoSlot {
			q.end(w, budgetError(wait, maxWait))
			continue
		}
		// The call may have ended, such as with a slot of a cancelled call. Then Wait may read its
		// fields without mu, so they must not change.
		hasEnded := w.element == nil
		if !hasEnded {
			w.isBought = true
		}
		slot := sent.Add(wait)
		if slot.After(q.last) {
			q.last = slot
		}
		q.insert(received.Add(max(wait, 0)))
	}
	q.serve()
}

func budgetError(wait, maxWait time.Duration) error {
	return fmt.Errorf("%w: the next free slot is in %v, but the deadline leaves %v for the wait",
		ErrBudgetExceeded, wait.Round(time.Millisecond), max(maxWait, 0).Round(time.Millisecond))
}

// The functions below are called with mu held.

// end ends a call, unless it has ended.
func (q *queue) end(w *waiter, err error) {
	if w.element == nil {
		return
	}
	q.waiters.Remove(w.element)
	w.element = nil
	w.err = err
	close(w.done)
}

// insert adds a slot.
func (q *queue) insert(slot time.Time) {
	i, _ := slices.BinarySearchFunc(q.slots, slot, time.Time.Compare)
	q.slots = slices.Insert(q.slots, i, slot)
}

// serve gives the slots that have begun to the first calls. It discards a slot that no call waits
// for: used later, the slot would exceed the budget. Then it sets the timer to the next slot.
func (q *queue) serve() {
	for len(q.slots) > 0 && time.Until(q.slots[0]) <= 0 {
		if first := q.waiters.Front(); first != nil {
			w := first.Value.(*waiter)
			w.begin = q.slots[0]
			q.end(w, nil)
		} else {
			q.discarded.Add(1)
		}
		q.slots = q.slots[1:]
	}
	q.timer.Stop()
	if q.waiters.Len() > 0 && len(q.slots) > 0 {
		q.timer.Reset(time.Until(q.slots[0]))
	}
}
