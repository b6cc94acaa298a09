package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A changingList inserts records near the start of the list, not in the order of their
// ids. It deletes only records that are stored, so all must be stored in the end.
type changingList struct {
	mu       sync.Mutex
	rng      *rand.Rand
	inserted map[int64]msgpush.ForwardLog
	stored   map[int64]msgpush.ForwardLog // some of those in the database
	limit    int                          // of records in the list; more are deleted if they are stored
	deleted  int
	frozen   bool
}

func (l *changingList) change(r *msgpushtest.Records) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen {
		return
	}
	for range l.rng.IntN(10) {
		n := int64(len(l.inserted) + 1)
		log := logs(n, n)[0] // the newest one
		log.ID = 10 * (n - l.rng.Int64N(4))
		if _, ok := l.inserted[log.ID]; ok {
			log.ID = 10*n + 1
		}
		l.inserted[log.ID] = log
		r.ForwardLogs = slices.Insert(r.ForwardLogs, min(l.rng.IntN(4), len(r.ForwardLogs)), log)
	}
	for i := len(r.ForwardLogs) - 1; i >= l.limit; i-- {
		if _, ok := l.stored[r.ForwardLogs[i].ID]; ok {
			r.ForwardLogs = slices.Delete(r.ForwardLogs, i, i+1)
			l.deleted++
		}
	}
}

func (l *changingList) set(limit int, stored map[int64]msgpush.ForwardLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.stored = limit, stored
}

func (l *changingList) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = true
}

// createdAfter returns the ids of the records that were created after a time.
func (l *changingList) createdAfter(since string) (ids []int64) {
	for id, log := range l.inserted {
		if string(log.CreateTime) > since {
			ids = append(ids, id)
		}
	}
	return ids
}

// The list changes with each request; it grows for five kills, and shrinks for the next five. A
// trigger counts each insertion into the database. The first kills are during the first reading.
func TestKilledArchivesLoseAndRepeatNothing(t *testing.T) {
	const kills = 25
	for name, processes := range map[string]int{"one process": 1, "three processes": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachDatabase(t, func(t *testing.T, newDB func(*testing.T) testDatabase) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				db := newDB(t)
				db.countInsertions(t)
				list := &changingList{rng: rand.New(rand.NewPCG(1, 2)), inserted: map[int64]msgpush.ForwardLog{}}
				srv, env := newService(t, nil)
				for range 250 {
					srv.Update(list.change)
				}
				srv.OnRequest(func(msgpushtest.Request) { srv.Update(list.change) })

				restart := func() *process { return start(t, env, "-db", db.dsn, "-read-interval", "500ms") }
				running := make([]*process, processes)
				for i := range running {
					running[i] = restart()
				}
				killing := rand.New(rand.NewPCG(3, 4))
				for k := range kills {
					_, err := srv.WaitForRequest(ctx, len(srv.Requests())+1+killing.IntN(40))
					require.NoError(t, err)
					time.Sleep(time.Duration(killing.Int64N(int64(20 * time.Millisecond)))) // at any point of a transaction
					i := k % processes
					running[i].kill()
					for range killing.IntN(50) { // while it is down
						srv.Update(list.change)
					}
					list.set([]int{4000, 300}[k/5%2], db.logs(t))
					running[i] = restart()
				}
				list.freeze()
				db.waitForCount(t, "forward_log", len(list.inserted))
				for _, p := range running {
					p.kill()
				}
				assert.True(t, maps.Equal(list.inserted, db.logs(t)))
				assert.Empty(t, db.query(t, "SELECT id FROM insertion GROUP BY id HAVING count(*) > 1"), "stored twice")
				since := db.query(t, "SELECT since FROM follow_since")
				require.Len(t, since, 1)
				outbox := db.outbox(t)
				assert.ElementsMatch(t, list.createdAfter(since[0][0]), outbox)
				assert.Less(t, len(outbox), len(list.inserted), "the history")
				t.Logf("%d inserted, %d deleted, %d in the outbox, %d requests",
					len(list.inserted), list.deleted, len(outbox), len(srv.Requests()))
			})
		})
	}
}

// countInsertions makes the database add the id of each inserted record to a table.
func (d testDatabase) countInsertions(t *testing.T) {
	t.Helper()
	require.NoError(t, d.prepare(t.Context()))
	d.exec(t, "CREATE TABLE insertion (id BIGINT NOT NULL)")
	insertion := "INSERT INTO insertion VALUES (NEW.id);"
	if !d.postgres {
		d.exec(t, "CREATE TRIGGER count_insertion AFTER INSERT ON forward_log BEGIN "+insertion+" END")
		return
	}
	d.exec(t, `CREATE FUNCTION count_insertion() RETURNS trigger LANGUAGE plpgsql
		AS 'BEGIN `+insertion+` RETURN NULL; END'`)
	d.exec(t, `CREATE TRIGGER count_insertion AFTER INSERT ON forward_log
		FOR EACH ROW EXECUTE FUNCTION count_insertion()`)
}
