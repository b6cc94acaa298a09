package followsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
)

// A database is a driver of a database with the table follow_position. It knows the statements of the
// package, and one of save: INSERT INTO alerts. It makes one transaction after another.
type database struct {
	hasNoTable  bool
	mayNotAlter bool
	hangs       bool // statements wait until their context ends

	writing   sync.Mutex // held by a transaction
	positions map[string]string
	alerts    int64
}

func (d *database) open(t *testing.T) *sql.DB {
	t.Helper()
	if d.positions == nil {
		d.positions = map[string]string{}
	}
	db := sql.OpenDB(d)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (d *database) Connect(context.Context) (driver.Conn, error) {
	return &connection{database: d}, nil
}
func (d *database) Driver() driver.Driver { return nil }

// A connection may have a transaction. It keeps what Rollback restores.
type connection struct {
	*database
	isInTransaction bool
	positions       map[string]string
	alerts          int64
}

func (c *connection) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *connection) Close() error                        { return nil }
func (c *connection) Begin() (driver.Tx, error) {
	c.writing.Lock()
	c.isInTransaction = true
	c.positions, c.alerts = maps.Clone(c.database.positions), c.database.alerts
	return c, nil
}

func (c *connection) Commit() error {
	c.isInTransaction = false
	c.writing.Unlock()
	return nil
}

func (c *connection) Rollback() error {
	c.database.positions, c.database.alerts = c.positions, c.alerts
	return c.Commit()
}

func (c *connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.end()
	isCreate := strings.Contains(query, "CREATE TABLE")
	switch {
	case isCreate && c.mayNotAlter:
		return nil, errors.New("permission denied")
	case isCreate:
		c.hasNoTable = false
	case c.hasNoTable:
		return nil, errors.New("no such table")
	case strings.HasPrefix(query, "INSERT INTO follow_position"):
		list := args[0].Value.(string)
		c.database.positions[list] += ""
	case strings.HasPrefix(query, "UPDATE follow_position"):
		list := args[1].Value.(string)
		stored, ok := c.database.positions[list]
		if !ok || stored != args[2].Value {
			return driver.RowsAffected(0), nil
		}
		c.database.positions[list] = args[0].Value.(string)
	case strings.HasPrefix(query, "INSERT INTO alerts"):
		c.database.alerts++
	}
	return driver.RowsAffected(1), nil
}

func (c *connection) QueryContext(ctx context.Context, _ string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.end()
	position, ok := c.database.positions[args[0].Value.(string)]
	return &rows{position: position, isEnd: !ok}, nil
}

// begin begins a statement.
func (c *connection) begin(ctx context.Context) error {
	if c.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if !c.isInTransaction {
		c.writing.Lock()
	}
	return nil
}

func (c *connection) end() {
	if !c.isInTransaction {
		c.writing.Unlock()
	}
}

// rows is at most one row, with a position.
type rows struct {
	position string
	isEnd    bool
}

func (r *rows) Columns() []string { return []string{"position"} }
func (r *rows) Close() error      { return nil }

func (r *rows) Next(dest []driver.Value) error {
	if r.isEnd {
		return io.EOF
	}
	r.isEnd = true
	dest[0] = r.position
	return nil
}
