// Package followsql keeps the position of a follower in a table of PostgreSQL or SQLite:
//
//	position := followsql.Position{DB: db, List: "trigger records of all rules"}
//	return f.Run(ctx, position.Load, followsql.Store(position, save))
//
// The function save stores the records of a batch in the transaction that replaces the position.
package followsql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"example.com/msgpush/follow"
)

const (
	createTable = `
CREATE TABLE IF NOT EXISTS follow_position (list TEXT NOT NULL PRIMARY KEY, position TEXT NOT NULL)`
	insertPosition = `INSERT INTO follow_position (list, position) VALUES ($1, '') ON CONFLICT (list) DO NOTHING`
	selectPosition = `SELECT position FROM follow_position WHERE list = $1`
	updatePosition = `UPDATE follow_position SET position = $1 WHERE list = $2 AND position = $3`
)

// A Position is a row of the table follow_position. To begin anew, delete the row while no program follows.
type Position struct {
	DB *sql.DB
	// List distinguishes the list and its filter from others. You choose it.
	List string
	// Timeout is how long Load and a transaction of [Store] may take, so that a database that hangs does
	// not stop the follower. 0 means a minute.
	Timeout time.Duration
}

// Load is the function load of [follow.Follower.Run]. It inserts the row, and creates the table, unless
// they exist:
//
//	CREATE TABLE follow_position (list TEXT NOT NULL PRIMARY KEY, position TEXT NOT NULL)
func (p Position) Load(ctx context.Context) (position string, err error) {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	switch {
	case p.DB == nil:
		return "", p.wrap(errors.New("the DB is nil"))
	case p.List == "":
		return "", p.wrap(errors.New("the List is empty"))
	}
	if err := p.insert(ctx); err != nil {
		return "", p.wrap(err)
	}
	err = p.DB.QueryRowContext(ctx, selectPosition, p.List).Scan(&position)
	return position, p.wrap(err)
}

func (p Position) insert(ctx context.Context) error {
	_, err := p.DB.ExecContext(ctx, insertPosition, p.List)
	if err == nil {
		return nil
	}
	_, createErr := p.DB.ExecContext(ctx, createTable) // may fail if another process creates it, too
	if _, err := p.DB.ExecContext(ctx, insertPosition, p.List); err != nil {
		return cmp.Or(createErr, err)
	}
	return nil
}

func (p Position) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(p.Timeout, time.Minute))
}

// wrap names the row in an error.
func (p Position) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the row %q of the table follow_position: %w", p.List, err)
}

// Store returns the function store of [follow.Follower.Run]. In one transaction, it replaces the position,
// and calls save with the batch, or it returns [follow.ErrReplaced]. If save returns an error, nothing is
// stored.
func Store[T any](
	p Position, save func(context.Context, *sql.Tx, follow.Batch[T]) error,
) func(context.Context, follow.Batch[T]) error {
	return func(ctx context.Context, batch follow.Batch[T]) error {
		ctx, cancel := p.withTimeout(ctx)
		defer cancel()
		tx, err := p.DB.BeginTx(ctx, nil)
		if err != nil {
			return p.wrap(err)
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
func (p Position) replace(ctx context.Context, tx *sql.Tx, previous, next string) error {
	result, err := tx.ExecContext(ctx, updatePosition, next, p.List, previous)
	if err != nil {
		return p.wrap(err)
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
