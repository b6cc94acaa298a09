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

// A queue holds the waiting calls of a limiter, and the slots that were taken for them. A slot belongs to a
// place in the queue, and is used by the call that is at this place when the slot begins. So if a call is
// cancelled, the calls after it move up.
type queue struct {
	discarded atomic.Int64 // see LimiterStats

	mu          sync.Mutex
	slots       []time.Time // not used yet, ascending
	withSlot    list.List   // of *waiter: the first calls, which have the slots of their places
	withoutSlot list.List   // of *waiter: the calls after them; empty while there are more slots than calls
	sending     bool        // a goroutine takes slots for the calls that have none
	timer       *time.Timer // runs advance when the first slot begins, if a call waits
	last        time.Time   // the latest slot that was taken
}

// A waiter is a call of Wait that waits for a slot. The mu of its queue guards its fields until done is
// closed.
type waiter struct {
	latest   time.Time     // its slot must not begin later
	list     *list.List    // withSlot or withoutSlot; nil if the call does not wait any more
	element  *list.Element // of list
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

// join adds a call. It reports whether the caller must start a goroutine that takes slots. None is needed if
// a slot is left, such as the slot of a cancelled call, or if such a goroutine already runs.
func (q *queue) join(w *waiter) (mustSend bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serve() // discards the slots that have begun while no call waited
	w.moveTo(&q.withoutSlot)
	q.serve()
	mustSend = q.withoutSlot.Len() > 0 && !q.sending
	if mustSend {
		q.sending = true
	}
	return mustSend
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

// nextCommand returns the calls for which the next command takes slots, and the latest slot that was taken.
// If all calls have a slot, it returns no calls, and the goroutine that sends commands ends. Then join
// requests another goroutine when it is needed.
func (q *queue) nextCommand() (calls []*waiter, last time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sending = q.withoutSlot.Len() > 0
	for next := q.withoutSlot.Front(); next != nil && len(calls) < maxCalls; next = next.Next() {
		calls = append(calls, next.Value.(*waiter))
	}
	return calls, q.last
}

// fail ends the calls that have no slot, after a command that failed. A call that was not in this command
// would get the same error: the store is unavailable.
func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.withoutSlot.Len() > 0 {
		q.end(first(&q.withoutSlot), err)
	}
}

// assign adds the slots of a command, and ends the calls whose slots are too late. waits is the reply to the
// command: how many microseconds each call must wait from the time when the script ran. That was between sent
// and now:
//
//   - A slot is counted from now, so that no call uses it too early.
//   - last is counted from sent: the script gives no slots long before last, so a last that is too late would
//     leave slots unused.
func (q *queue) assign(calls []*waiter, sent time.Time, waits []int64) {
	received := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range calls {
		wait := microseconds(waits[i])
		maxWait := w.maxWait(sent)
		// The script compared whole microseconds.
		tookSlot := wait <= maxWait.Truncate(time.Microsecond)
		// If the call has ended, such as with the slot of a cancelled call, Wait may read its fields
		// without mu.
		if w.list != nil {
			w.isBought = tookSlot
			w.latest = received.Add(maxWait) // the delay of the reply does not count
		}
		if !tookSlot {
			continue
		}
		slot := sent.Add(wait)
		if slot.After(q.last) {
			q.last = slot
		}
		q.insert(received.Add(max(wait, 0)))
	}
	q.serve()
	for i, w := range calls {
		if w.list == &q.withoutSlot {
			q.end(w, budgetError(microseconds(waits[i]), w.latest.Sub(received)))
		}
	}
}

func budgetError(wait, maxWait time.Duration) error {
	return fmt.Errorf("%w: the next free slot is in %v, but the deadline leaves %v for the wait",
		ErrBudgetExceeded, wait.Round(time.Millisecond), max(maxWait, 0).Round(time.Millisecond))
}

// The functions below are called with mu held.

// first returns the first call of a list that is not empty.
func first(l *list.List) *waiter { return l.Front().Value.(*waiter) }

// moveTo adds a call at the end of a list.
func (w *waiter) moveTo(l *list.List) {
	if w.list != nil {
		w.list.Remove(w.element)
	}
	w.list = l
	w.element = l.PushBack(w)
}

// end ends a call, unless it has ended.
func (q *queue) end(w *waiter, err error) {
	if w.list == nil {
		return
	}
	w.list.Remove(w.element)
	w.list = nil
	w.err = err
	close(w.done)
}

// insert adds a slot.
func (q *queue) insert(slot time.Time) {
	i, _ := slices.BinarySearchFunc(q.slots, slot, time.Time.Compare)
	q.slots = slices.Insert(q.slots, i, slot)
}

// moveUp gives the slots that are left to the first calls without one. It ends the calls for which they are
// too late.
func (q *queue) moveUp() {
	for q.withSlot.Len() < len(q.slots) && q.withoutSlot.Len() > 0 {
		w := first(&q.withoutSlot)
		slot := q.slots[q.withSlot.Len()]
		if slot.After(w.latest) {
			q.end(w, budgetError(time.Until(slot), time.Until(w.latest)))
			continue
		}
		w.moveTo(&q.withSlot)
	}
}

// serve lets the first calls use the slots that have begun. It discards a slot that no call waits for: used
// later, the slot would exceed the budget. Then it sets the timer to the next slot.
func (q *queue) serve() {
	q.moveUp()
	for len(q.slots) > 0 && time.Until(q.slots[0]) <= 0 {
		if q.withSlot.Len() > 0 {
			w := first(&q.withSlot)
			w.begin = q.slots[0]
			q.end(w, nil)
		} else {
			q.discarded.Add(1)
		}
		q.slots = q.slots[1:]
	}
	q.timer.Stop()
	if q.withSlot.Len() > 0 {
		q.timer.Reset(time.Until(q.slots[0]))
	}
}
