package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// The statements are the same for SQLite and PostgreSQL. The record of an alert is stored as JSON, so that a
// new member needs no new column.
const (
	createTables = `
CREATE TABLE IF NOT EXISTS outbox (
	record_id BIGINT NOT NULL PRIMARY KEY,
	body      TEXT   NOT NULL, -- the record as JSON
	attempts  BIGINT NOT NULL, -- how often sending has failed
	due       BIGINT NOT NULL  -- when it is sent next, in Unix seconds
);
CREATE TABLE IF NOT EXISTS follow_position (
	id       BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
	position TEXT   NOT NULL
);
INSERT INTO follow_position (id, position) VALUES (1, '') ON CONFLICT (id) DO NOTHING;`
	selectPosition = `SELECT position FROM follow_position WHERE id = 1`
	// updatePosition affects no row if another position than the previous one is stored.
	updatePosition = `UPDATE follow_position SET position = $1 WHERE id = 1 AND position = $2`
	insertAlert    = `
INSERT INTO outbox (record_id, body, attempts, due) VALUES ($1, $2, 0, $3) ON CONFLICT (record_id) DO NOTHING`
)

// databaseTimeout bounds a transaction, so that a server that hangs cannot stop the service. A batch has at
// most 500 records, and each alert is a round trip.
const databaseTimeout = time.Minute

// A store keeps the alerts to be sent, and the position from which following continues after a restart.
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

// position returns the position of the batch that was stored last. It is empty before the first batch.
func (s *store) position(ctx context.Context) (position string, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	err = s.db.QueryRowContext(ctx, selectPosition).Scan(&position)
	return position, err
}

// add stores the alerts and the position of a batch in one transaction, unless the stored position has changed.
func (s *store) add(ctx context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	result, err := tx.ExecContext(ctx, updatePosition, batch.Position, batch.Previous)
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
	alerts, err := newAlerts(batch)
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if _, err := tx.ExecContext(ctx, insertAlert, a.recordID, a.body, time.Now().Unix()); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// newAlerts returns an alert for each failure of a batch, and for each record that cannot be decoded, since
// it may be a failure.
func newAlerts(batch follow.Batch[msgpush.ForwardLog]) (alerts []alert, err error) {
	for _, r := range batch.Records {
		if !isFailure(r) {
			continue
		}
		body, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		alerts = append(alerts, alert{recordID: r.ID, body: string(body)})
	}
	for _, r := range batch.Omitted {
		body := strings.ToValidUTF8(string(r.JSON), "\uFFFD") // PostgreSQL rejects other texts
		alerts = append(alerts, alert{recordID: r.ID, body: body})
	}
	return alerts, nil
}

// isFailure reports whether a record is worth an alert. The API document does not list the codes of
// MatchResult, but a failed match has an error message. If you know the codes of your service, use them.
func isFailure(r msgpush.ForwardLog) bool { return r.ErrorMessage != "" }
