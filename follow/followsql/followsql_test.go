package followsql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/follow"
	"example.com/msgpush/follow/followsql"
	"example.com/msgpush/follow/followtest"
)

type batch = follow.Batch[int64]

// save inserts a row for each record.
func save(ctx context.Context, tx *sql.Tx, b batch) error {
	for range len(b.Records) + len(b.Omitted) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO alerts VALUES ($1)", 1); err != nil {
			return err
		}
	}
	return nil
}

// open returns a position of a database, whose row exists.
func open(t *testing.T, db *sql.DB, list string) followsql.Position {
	t.Helper()
	p := followsql.Position{DB: db, List: list}
	_, err := p.Load(t.Context())
	require.NoError(t, err)
	return p
}

func TestEachBatchIsStoredOnce(t *testing.T) {
	d := &database{hasNoTable: true}
	p := open(t, d.open(t), "list")
	require.NoError(t, followtest.CheckStore(t.Context(), p.Load, followsql.Store(p, save), int64(1), 2))
	assert.EqualValues(t, 3, d.alerts, "two records and an omitted one")
}

func TestPositionIsNotReplacedIfSaveFails(t *testing.T) {
	d := &database{}
	p := open(t, d.open(t), "list")
	errSave := errors.New("a row is too long")
	store := followsql.Store(p, func(ctx context.Context, tx *sql.Tx, b batch) error {
		require.NoError(t, save(ctx, tx, b))
		return errSave
	})
	require.ErrorIs(t, store(t.Context(), batch{Position: "first", Records: []int64{1}}), errSave)
	position, err := p.Load(t.Context())
	require.NoError(t, err)
	assert.Empty(t, position)
	assert.Zero(t, d.alerts)
}

func TestSaveIsNotCalledIfThePositionHasChanged(t *testing.T) {
	p := open(t, (&database{}).open(t), "list")
	store := followsql.Store(p, func(context.Context, *sql.Tx, batch) error {
		t.Error("save was called")
		return nil
	})
	require.ErrorIs(t, store(t.Context(), batch{Position: "second", Previous: "first"}), follow.ErrReplaced)
}

func TestEachListHasItsOwnPosition(t *testing.T) {
	db := (&database{hasNoTable: true}).open(t)
	for _, list := range []string{"a", "b"} {
		store := followsql.Store(open(t, db, list), save)
		require.NoError(t, store(t.Context(), batch{Position: "of " + list}))
	}
	for _, list := range []string{"a", "b"} {
		position, err := open(t, db, list).Load(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "of "+list, position)
	}
}

func TestTableThatExistsIsNotCreated(t *testing.T) {
	open(t, (&database{mayNotAlter: true}).open(t), "list")
}

func TestErrorOfCreatingTheTableIsReturned(t *testing.T) {
	d := &database{hasNoTable: true, mayNotAlter: true}
	_, err := followsql.Position{DB: d.open(t), List: "rules"}.Load(t.Context())
	assert.EqualError(t, err, `the row "rules" of the table follow_position: permission denied`)
}

func TestPositionWithoutDatabaseOrListIsAnError(t *testing.T) {
	_, err := followsql.Position{List: "rules"}.Load(t.Context())
	assert.EqualError(t, err, `the row "rules" of the table follow_position: the DB is nil`)
	_, err = followsql.Position{DB: (&database{}).open(t)}.Load(t.Context())
	assert.EqualError(t, err, `the row "" of the table follow_position: the List is empty`)
}

func TestRowThatWasDeletedBeginsAnew(t *testing.T) {
	d := &database{}
	p := open(t, d.open(t), "list")
	store := followsql.Store(p, save)
	require.NoError(t, store(t.Context(), batch{Position: "first"}))
	delete(d.positions, "list")
	require.ErrorIs(t, store(t.Context(), batch{Position: "second", Previous: "first"}), follow.ErrReplaced)
	position, err := p.Load(t.Context())
	require.NoError(t, err)
	assert.Empty(t, position)
	assert.NoError(t, store(t.Context(), batch{Position: "first"}))
}

func TestDatabaseThatHangsIsAnErrorAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		db := d.open(t)
		p := open(t, db, "list")
		d.hangs = true
		begin := time.Now()
		_, err := p.Load(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, followsql.Store(p, save)(t.Context(), batch{Position: "first"}), context.DeadlineExceeded)
		assert.Equal(t, 2*time.Minute, time.Since(begin))
		p.Timeout = time.Second
		_, err = p.Load(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 2*time.Minute+time.Second, time.Since(begin))
		require.NoError(t, db.Close())
	})
}
