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
	"example.com/msgpush/follow/followsql"
)

// The statements are the same for SQLite and PostgreSQL. The record of an alert is stored as JSON, so that a
// new member needs no new column.
const (
	createOutbox = `
CREATE TABLE IF NOT EXISTS outbox (
	record_id BIGINT NOT NULL PRIMARY KEY,
	body      TEXT   NOT NULL, -- the record as JSON
	attempts  BIGINT NOT NULL, -- how often sending has failed
	due       BIGINT NOT NULL, -- when it is sent next, in Unix seconds
	stored    BIGINT NOT NULL  -- when it was stored, in Unix seconds
)`
	insertAlert = `
INSERT INTO outbox (record_id, body, attempts, due, stored) VALUES ($1, $2, 0, $3, $3)
ON CONFLICT (record_id) DO NOTHING`
)

// databaseTimeout bounds a statement, so that a server that hangs cannot stop the service.
const databaseTimeout = time.Minute

// A store keeps the alerts to be sent, and the position from which following continues after a restart.
type store struct {
	db       *sql.DB
	position followsql.Position
}

// openStore opens a file of SQLite or, for a URL, a database of PostgreSQL, and creates the outbox.
func openStore(ctx context.Context, name string) (*store, error) {
	db, err := openDatabase(name)
	if err != nil {
		return nil, err
	}
	s := &store{db, followsql.Position{DB: db, List: "trigger records"}}
	if err := s.exec(ctx, createOutbox); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
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

// add stores the alerts and the position of a batch in one transaction.
func (s *store) add(ctx context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
	return followsql.Store(s.position, insertAlerts)(ctx, batch)
}

func insertAlerts(ctx context.Context, tx *sql.Tx, batch follow.Batch[msgpush.ForwardLog]) error {
	alerts, err := newAlerts(batch)
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if _, err := tx.ExecContext(ctx, insertAlert, a.recordID, a.body, time.Now().Unix()); err != nil {
			return err
		}
	}
	return nil
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
