package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
)

// The columns have the values that the service sends: codes are numbers, and times are
// texts without a time zone.
const schema = `
CREATE TABLE IF NOT EXISTS forward_log (
	id                BIGINT NOT NULL PRIMARY KEY,
	rule_id           BIGINT NOT NULL,
	rule_name         TEXT NOT NULL,
	source_type       BIGINT NOT NULL,
	source_type_name  TEXT NOT NULL,
	request_ip        TEXT NOT NULL,
	match_result      BIGINT NOT NULL,
	match_result_name TEXT NOT NULL,
	short_codes       TEXT NOT NULL,
	error_message     TEXT NOT NULL,
	create_time       TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS forward_rule (
	id             BIGINT NOT NULL PRIMARY KEY,
	rule_name      TEXT NOT NULL,
	condition_expr TEXT NOT NULL
);`

const (
	insertLog = `INSERT INTO forward_log (id, rule_id, rule_name, source_type, source_type_name,
	request_ip, match_result, match_result_name, short_codes, error_message, create_time)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING`
	insertRule = `INSERT INTO forward_rule (id, rule_name, condition_expr) VALUES ($1, $2, $3)`
)

const (
	lockTimeout        = 5 * time.Second
	transactionTimeout = 30 * time.Second
)

// lockPostgres makes the transactions of all archives take turns, as SQLite does:
// CREATE TABLE IF NOT EXISTS can fail if two transactions run it at the same time, and
// two that insert the same records in a different order could wait for each other.
var lockPostgres = fmt.Sprintf("SET LOCAL lock_timeout = %d; SELECT pg_advisory_xact_lock(hashtext('forward_log'))", lockTimeout.Milliseconds())

// A database is the destination of the records.
type database struct {
	*sql.DB
	name     string
	postgres bool
}

// newDatabase returns the PostgreSQL database of a URL or the SQLite database in a
// file. It does not connect.
func newDatabase(dsn string) (*database, error) {
	d := &database{name: dsn}
	switch scheme, _, isURL := strings.Cut(dsn, "://"); {
	case dsn == "":
		return nil, errors.New("the name is empty")
	case scheme == "postgres" || scheme == "postgresql":
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err // without the password
		}
		d.DB = stdlib.OpenDB(*config)
		d.name = fmt.Sprintf("database %s on %s", cmp.Or(config.Database, config.User), config.Host)
		d.postgres = true
	case isURL:
		return nil, errors.New("the scheme of the URL is not postgres")
	case dsn == ":memory:":
		return nil, errors.New("a database in memory keeps nothing; pass the name of a file")
	case strings.Contains(dsn, "host=") || strings.Contains(dsn, "dbname="): // unlikely in the name of a file
		return nil, errors.New("connection parameters are not supported; pass a URL such as postgres://USER@HOST/NAME")
	default:
		path := url.URL{Path: filepath.ToSlash(dsn)}
		// With a write-ahead log, queries do not block the archive.
		db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(wal)&_txlock=immediate",
			path.EscapedPath(), lockTimeout.Milliseconds()))
		if err != nil {
			return nil, err
		}
		d.DB = db
	}
	d.SetMaxOpenConns(1)
	return d, nil
}

// prepare connects and creates the tables if they are missing.
func (d *database) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	// If several processes create an SQLite file at the same time, setting the journal
	// mode fails without the wait of busy_timeout.
	begin, err := time.Now(), d.PingContext(ctx)
	for sqliteCode(err) == sqlite3.SQLITE_BUSY && time.Since(begin) < lockTimeout {
		pause(ctx, 10*time.Millisecond)
		err = d.PingContext(ctx)
	}
	if err != nil {
		return d.newError(err)
	}
	return d.transaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema)
		return err
	})
}

// insertLogs stores records in one transaction. It returns the number of records that
// were not stored before.
func (d *database) insertLogs(ctx context.Context, records []msgpush.ForwardLog) (added int64, err error) {
	err = d.transaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, r := range records {
			result, err := tx.ExecContext(ctx, insertLog, r.ID, r.RuleID, d.text(r.RuleName), r.SourceType, d.text(r.SourceTypeName),
				d.text(r.RequestIP), r.MatchResult, d.text(r.MatchResultName), d.text(r.ShortCodes), d.text(r.ErrorMessage), d.text(string(r.CreateTime)))
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			if err != nil {
				return err
			}
			added += n
			// To do more for each new record exactly once, such as to send a message,
			// insert the message into a table here, in the transaction, if n is 1.
		}
		return nil
	})
	return added, err
}

// replaceRules stores the current rules in one transaction.
func (d *database) replaceRules(ctx context.Context, rules []msgpush.ForwardRule) error {
	return d.transaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM forward_rule"); err != nil {
			return err
		}
		for _, r := range rules {
			if _, err := tx.ExecContext(ctx, insertRule, r.ID, d.text(r.RuleName), d.text(r.ConditionExpr)); err != nil {
				return err
			}
		}
		return nil
	})
}

// text returns s as the database can store it. PostgreSQL cannot store U+0000.
func (d *database) text(s string) string {
	if d.postgres {
		return strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return s
}

// transaction commits what f does. An error is a *databaseError.
func (d *database) transaction(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return d.newError(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if d.postgres {
		_, err = tx.ExecContext(ctx, lockPostgres)
	}
	if err == nil {
		err = f(ctx, tx)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return d.newError(err)
	}
	return nil
}

// A databaseError is a failed connection or transaction. The transaction has stored nothing,
// unless the connection was lost during the commit: then it may have stored everything.
type databaseError struct {
	database  string
	advice    string
	temporary bool // a retry may succeed
	cause     error
}

// temporaryClasses are the SQLSTATE classes of failures that may pass: failed connections,
// rolled back transactions, no disk space or memory, locks, a server that shuts down or starts.
var temporaryClasses = []string{"08", "40", "53", "55", "57"}

func (d *database) newError(err error) error {
	e := &databaseError{database: d.name, cause: err}
	if d.postgres {
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		e.temporary = !ok || slices.ContainsFunc(temporaryClasses, func(class string) bool { return strings.HasPrefix(pgErr.Code, class) })
		return e
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL:
		e.temporary = true
	case sqlite3.SQLITE_IOERR: // some files cannot be created on a full disk
		e.temporary = true
		e.advice = ": check the disk and its free space"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		e.advice = ": restore it, or use another file: the archive then has the records that the service still has"
	}
	return e
}

func (e *databaseError) Error() string {
	return e.database + ": " + cli.Printable(e.cause.Error()) + e.advice
}

func (e *databaseError) Unwrap() error { return e.cause }

// sqliteCode returns the primary result code of an error of SQLite, otherwise 0.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
