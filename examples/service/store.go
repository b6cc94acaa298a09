package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// The statements are the same for SQLite and PostgreSQL. A record is stored as JSON, so that a new
// member needs no new column: add columns for what your queries use.
const (
	createTables = `
CREATE TABLE IF NOT EXISTS record (
	id   BIGINT NOT NULL PRIMARY KEY,
	body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS outbox (
	record_id BIGINT NOT NULL PRIMARY KEY REFERENCES record (id),
	attempts  BIGINT NOT NULL, -- how often sending has failed
	due       BIGINT NOT NULL  -- when it is sent next, in Unix seconds
);
CREATE TABLE IF NOT EXISTS follow_state (
	id    BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
	since TEXT NOT NULL
);`
	selectSince  = `SELECT since FROM follow_state`
	selectIDs    = `SELECT id FROM record`
	insertSince  = `INSERT INTO follow_state (id, since) VALUES (1, $1) ON CONFLICT (id) DO NOTHING`
	insertRecord = `INSERT INTO record (id, body) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`
	insertAlert  = `INSERT INTO outbox (record_id, attempts, due) VALUES ($1, 0, $2)`
)

// databaseTimeout bounds a transaction, so that a server that hangs cannot stop the service. After an
// outage, a batch may have 10,000 records, and each record is a round trip.
const databaseTimeout = 2 * time.Minute

// A store keeps the records, the alerts to be sent, and where following goes on after a restart.
type store struct{ db *sql.DB }

// openStore opens a file of SQLite or, for a URL, a database of PostgreSQL, and creates the tables.
func openStore(ctx context.Context, name string) (*store, error) {
	db, err := openDatabase(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if _, err := db.ExecContext(ctx, createTables); err != nil {
		_ = db.Close()
		return nil, err
	}
	return &store{db}, nil
}

func openDatabase(name string) (*sql.DB, error) {
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		db, err := sql.Open("pgx", name)
		if err != nil {
			return nil, err
		}
		db.SetConnMaxLifetime(5 * time.Minute) // after a failover, new connections reach the new primary
		return db, nil
	}
	file := url.URL{Path: filepath.ToSlash(name)} // so that a ? in the name begins no options
	// With a write-ahead log, queries of other programs do not block this one.
	const options = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_txlock=immediate"
	db, err := sql.Open("sqlite", "file:"+file.EscapedPath()+options)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer; others would wait in its busy timeout
	return db, nil
}

func (s *store) close() { _ = s.db.Close() }

// position returns the ids of the stored records and the Since of the first batch, for
// follow.Options. Both are empty before the first batch.
func (s *store) position(ctx context.Context) (known []int64, since msgpush.DateTime, err error) {
	err = s.db.QueryRowContext(ctx, selectSince).Scan(&since)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	rows, err := s.db.QueryContext(ctx, selectIDs)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, "", err
		}
		known = append(known, id)
	}
	return known, since, rows.Err()
}

// add stores a batch and the alerts of its new failures in one transaction. It skips records that
// are stored: if the response to a COMMIT is lost, the batch is stored already, and its alerts may
// have been sent. It returns the number of records that were added.
func (s *store) add(ctx context.Context, batch follow.Batch[msgpush.ForwardLog]) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, insertSince, string(batch.Since)); err != nil {
		return 0, err
	}
	history, err := addRecords(ctx, tx, batch.History)
	if err != nil {
		return 0, err
	}
	added, err := addRecords(ctx, tx, batch.New)
	if err != nil {
		return 0, err
	}
	for _, r := range added {
		if !isFailure(r) {
			continue
		}
		if _, err := tx.ExecContext(ctx, insertAlert, r.ID, time.Now().Unix()); err != nil {
			return 0, err
		}
	}
	return len(history) + len(added), tx.Commit()
}

// addRecords stores records and returns the new ones.
func addRecords(ctx context.Context, tx *sql.Tx, records []msgpush.ForwardLog) (added []msgpush.ForwardLog, err error) {
	for _, r := range records {
		body, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		result, err := tx.ExecContext(ctx, insertRecord, r.ID, string(body))
		if err != nil {
			return nil, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return nil, err
		}
		if n > 0 {
			added = append(added, r)
		}
	}
	return added, nil
}

// isFailure reports whether a record is worth an alert. The API document does not list the codes of
// MatchResult, but a failed match has an error message. If you know the codes of your service, use
// them.
func isFailure(r msgpush.ForwardLog) bool { return r.ErrorMessage != "" }
