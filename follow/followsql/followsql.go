// Package followsql keeps the position of a follower in a table of PostgreSQL or SQLite:
//
//	position, err := followsql.Open(ctx, db, "trigger records of all rules")
//	if err != nil {
//		return err
//	}
//	return f.Run(ctx, position.Load, followsql.Store(position, save))
//
// The function save stores the records of a batch in the transaction that replaces the position.
package followsql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"example.com/msgpush/follow"
)

// Timeout is how long [Position.Load] and a transaction of [Store] may take, so that a database that hangs does not
// stop the follower.
const Timeout = time.Minute

const (
	createTable = `
CREATE TABLE IF NOT EXISTS follow_position (list TEXT NOT NULL PRIMARY KEY, position TEXT NOT NULL)`
	insertPosition = `INSERT INTO follow_position (list, position) VALUES ($1, '') ON CONFLICT (list) DO NOTHING`
	selectPosition = `SELECT position FROM follow_position WHERE list = $1`
	updatePosition = `UPDATE follow_position SET position = $1 WHERE list = $2 AND position = $3`
)

// A Position is a row of the table follow_position. It is safe for concurrent use.
type Position struct {
	db   *sql.DB
	list string
}

// Open returns the position of a list and its filter, which a name of your choice distinguishes from others. It inserts
// the row, and creates the table, unless they exist:
//
//	CREATE TABLE follow_position (list TEXT NOT NULL PRIMARY KEY, position TEXT NOT NULL)
func Open(ctx context.Context, db *sql.DB, list string) (*Position, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if _, err := db.ExecContext(ctx, insertPosition, list); err == nil {
		return &Position{db, list}, nil
	}
	_, createErr := db.ExecContext(ctx, createTable) // may fail if another process creates it, too
	if _, err := db.ExecContext(ctx, insertPosition, list); err != nil {
		return nil, fmt.Errorf("msgpush: opening the position of the list %q: %w", list, cmp.Or(createErr, err))
	}
	return &Position{db, list}, nil
}

// Load is the function load of [follow.Follower.Run].
func (p *Position) Load(ctx context.Context) (position string, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err = p.db.QueryRowContext(ctx, selectPosition, p.list).Scan(&position)
	return position, err
}

// Store returns the function store of [follow.Follower.Run]. In one transaction, it replaces the position, and calls
// save with the batch, or it returns [follow.ErrReplaced]. If save returns an error, nothing is stored.
func Store[T any](
	p *Position, save func(context.Context, *sql.Tx, follow.Batch[T]) error,
) func(context.Context, follow.Batch[T]) error {
	return func(ctx context.Context, batch follow.Batch[T]) error {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if err := p.replace(ctx, tx, batch.Previous, batch.Position); err != nil {
			return err
		}
		if err := save(ctx, tx, batch); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// replace replaces a position if it is still the stored one.
func (p *Position) replace(ctx context.Context, tx *sql.Tx, previous, next string) error {
	result, err := tx.ExecContext(ctx, updatePosition, next, p.list, previous)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if changed == 0 {
		return follow.ErrReplaced
	}
	return nil
}
