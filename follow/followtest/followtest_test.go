package followtest_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/follow/followtest"
)

type batch = follow.Batch[msgpush.ForwardLog]

var records = []msgpush.ForwardLog{{ID: 1}, {ID: 2}}

func TestCheckStoreAcceptsAStoreThatComparesThePosition(t *testing.T) {
	var db database
	require.NoError(t, followtest.CheckStore(t.Context(), db.load, db.store, records...))
	assert.Equal(t, []int64{1, 2, -1}, db.alerts)
}

func TestCheckStoreRejects(t *testing.T) {
	errDatabase := errors.New("the database is down")
	tests := []struct {
		name  string
		load  func(*database, context.Context) (string, error) // nil: that of database
		store func(*database, context.Context, batch) error    // nil: that of database
		want  string

		concurrent bool // the database does not make the calls of store one after another
	}{
		{
			name: "load that fails",
			load: func(*database, context.Context) (string, error) { return "", errDatabase },
			want: "load, at the very first start: the database is down",
		},
		{
			name: "a position before the first start",
			load: func(*database, context.Context) (string, error) { return "null", nil },
			want: "load, at the very first start: got a position of 4 bytes",
		},
		{
			name:  "a store that fails",
			store: func(*database, context.Context, batch) error { return errDatabase },
			want:  "store, for a batch without records: got the error the database is down, want <nil>",
		},
		{
			name: "a store that ignores batches without records",
			store: func(db *database, ctx context.Context, b batch) error {
				if len(b.Records) == 0 {
					return nil
				}
				return db.store(ctx, b)
			},
			want: "store returned nil for 8 of 8 batches with the same Previous",
		},
		{
			name: "a store that cuts long positions",
			store: func(db *database, ctx context.Context, b batch) error {
				b.Position = b.Position[:min(len(b.Position), 64<<10-1)]
				return db.store(ctx, b)
			},
			want: "load, for a batch with records: got a position of 65535 bytes",
		},
		{
			name: "a store that does not compare the position",
			store: func(db *database, _ context.Context, b batch) error {
				db.add(b)
				return nil
			},
			want: "store returned nil for 8 of 8 batches with the same Previous",
		},
		{
			name: "a store that ignores a batch that is stored already",
			store: func(db *database, ctx context.Context, b batch) error {
				if b.Position == db.position {
					return nil
				}
				return db.store(ctx, b)
			},
			want: "store, for a batch that is stored already: got the error <nil>, want",
		},
		{
			name: "a store that stores rows of another position",
			store: func(db *database, ctx context.Context, b batch) error {
				err := db.store(ctx, b)
				if b.Position == "other" {
					db.add(b)
				}
				return err
			},
			want: "load, for the first batch of another process: got a position of 5 bytes",
		},
		{
			name: "a store that compares the position before its transaction",
			store: func(db *database, ctx context.Context, b batch) error {
				position, _ := db.load(ctx)
				if position != b.Previous {
					return follow.ErrReplaced
				}
				for range 1000 {
					runtime.Gosched() // until the others have loaded it, too
				}
				db.mu.Lock()
				defer db.mu.Unlock()
				db.add(b)
				return nil
			},
			want:       "batches with the same Previous",
			concurrent: true,
		},
		{
			name: "a store that replaces any position at a first start",
			store: func(db *database, ctx context.Context, b batch) error {
				isStored := strings.HasPrefix(db.position, "process") && b.Previous == ""
				if b.Previous == "" && !isStored {
					db.add(b)
					return nil
				}
				return db.store(ctx, b)
			},
			want: "store, for the first batch of another process: got the error <nil>, want",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var db database
			load, store := db.load, db.store
			if tt.load != nil {
				load = func(ctx context.Context) (string, error) { return tt.load(&db, ctx) }
			}
			if tt.store != nil {
				var serial sync.Mutex
				store = func(ctx context.Context, b batch) error {
					if !tt.concurrent {
						serial.Lock()
						defer serial.Unlock()
					}
					return tt.store(&db, ctx, b)
				}
			}
			assert.ErrorContains(t, followtest.CheckStore(t.Context(), load, store, records...), tt.want)
		})
	}
}
