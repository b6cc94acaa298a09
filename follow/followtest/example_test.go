package followtest_test

import (
	"context"
	"fmt"
	"sync"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/follow/followtest"
)

// A database stands for a table with a position, and a table of alerts.
type database struct {
	mu       sync.Mutex
	position string
	alerts   []int64
}

func (db *database) load(context.Context) (string, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.position, nil
}

func (db *database) store(_ context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.position != batch.Previous {
		return follow.ErrReplaced
	}
	db.add(batch)
	return nil
}

func (db *database) add(batch follow.Batch[msgpush.ForwardLog]) {
	db.position = batch.Position
	for _, record := range batch.Records {
		db.alerts = append(db.alerts, record.ID)
	}
	for _, record := range batch.Omitted {
		db.alerts = append(db.alerts, record.ID)
	}
}

func ExampleCheckStore() {
	var db database // empty
	err := followtest.CheckStore(context.Background(), db.load, db.store, msgpush.ForwardLog{ID: 9001})
	fmt.Println(err, db.alerts)
	// Output: <nil> [9001 -1]
}
