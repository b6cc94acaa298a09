package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"
)

// The outbox holds the alerts that are not sent yet. A process claims an alert before it sends it, since two
// may run during a deployment, and removes it afterwards. So it is sent at least once: if the process is
// killed between the two, it is sent again when the claim has ended.

const (
	selectDue = `
SELECT record_id, body, attempts, due FROM outbox WHERE due <= $1 ORDER BY due, record_id LIMIT 100`
	// claim affects no row if another process has claimed the alert.
	claim       = `UPDATE outbox SET attempts = attempts + 1, due = $3 WHERE record_id = $1 AND due = $2`
	updateDue   = `UPDATE outbox SET due = $2 WHERE record_id = $1`
	deleteAlert = `DELETE FROM outbox WHERE record_id = $1`
	countAlerts = `SELECT count(*) FROM outbox`
	oldestAlert = `SELECT min(stored) FROM outbox`
)

// An alert is a row of the outbox.
type alert struct {
	recordID int64
	body     string // the record as JSON
	attempts int    // how often it was claimed before
	due      int64  // in Unix seconds
}

func (s *store) dueAlerts(ctx context.Context, now time.Time) ([]alert, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	rows, err := s.db.QueryContext(ctx, selectDue, now.Unix())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var alerts []alert
	for rows.Next() {
		var a alert
		if err := rows.Scan(&a.recordID, &a.body, &a.attempts, &a.due); err != nil {
			return nil, err
		}
		alerts = append(alerts, a)
	}
	return alerts, rows.Err()
}

// claimAlert claims an alert until a time, and reports whether no other process has claimed it.
func (s *store) claimAlert(ctx context.Context, a alert, until time.Time) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	result, err := s.db.ExecContext(ctx, claim, a.recordID, a.due, until.Unix())
	if err != nil {
		return false, err
	}
	changed, err := result.RowsAffected()
	return changed == 1, err
}

func (s *store) postponeAlert(ctx context.Context, id int64, due time.Time) error {
	return s.exec(ctx, updateDue, id, due.Unix())
}

func (s *store) removeAlert(ctx context.Context, id int64) error {
	return s.exec(ctx, deleteAlert, id)
}

func (s *store) exec(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	_, err := s.db.ExecContext(ctx, statement, args...)
	return err
}

func (s *store) outboxLength(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, countAlerts).Scan(&n)
	return n, err
}

// checkOutbox returns an error if an alert has waited for longer than a limit.
func (s *store) checkOutbox(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var stored sql.NullInt64
	if err := s.db.QueryRowContext(ctx, oldestAlert).Scan(&stored); err != nil {
		return fmt.Errorf("reading the outbox: %w", err)
	}
	waits := time.Since(time.Unix(stored.Int64, 0))
	if stored.Valid && waits > limit {
		return fmt.Errorf("an alert has waited for %v to be sent", waits.Round(time.Second))
	}
	return nil
}

// queryTimeout bounds a query for a request of /healthz or /metrics.
const queryTimeout = 5 * time.Second

// sendInterval is the time between two looks into the outbox.
const sendInterval = time.Second

// A sender sends the alerts of the outbox.
type sender struct {
	store  *store
	send   target
	logger *slog.Logger
}

// run sends alerts until ctx ends. Then it completes the alert that is being sent.
func (s *sender) run(ctx context.Context) {
	for {
		s.sendDue(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(sendInterval):
		}
	}
}

// sendDue sends the alerts that are due. It stops at a failure: so a target that is down gets one request per
// sendInterval, and one alert that is never accepted does not block the others.
func (s *sender) sendDue(ctx context.Context) {
	var alerts []alert
	s.retry(ctx, "outbox not read", func() (err error) {
		alerts, err = s.store.dueAlerts(ctx, time.Now())
		return err
	})
	for _, a := range alerts {
		if ctx.Err() != nil || !s.sendOne(ctx, a) {
			return
		}
	}
}

// claimTime is longer than sending takes.
const claimTime = 2 * webhookTimeout

// sendOne claims an alert, sends it, and removes or postpones it. It reports whether the alert was sent,
// perhaps by another process.
func (s *sender) sendOne(ctx context.Context, a alert) bool {
	isClaimed := false
	s.retry(ctx, "alert not claimed", func() (err error) {
		isClaimed, err = s.store.claimAlert(ctx, a, time.Now().Add(claimTime))
		return err
	})
	if !isClaimed {
		return true
	}
	complete := context.WithoutCancel(ctx) // an alert that is cut off now would be repeated
	err := s.send(complete, a)
	update := func() error { return s.store.removeAlert(complete, a.recordID) }
	if err != nil {
		wait := retryWait(a.attempts)
		s.logger.WarnContext(ctx, "alert not sent", "record_id", a.recordID, "error", err, "retry_in", wait.String())
		update = func() error { return s.store.postponeAlert(complete, a.recordID, time.Now().Add(wait)) }
	}
	s.retry(ctx, "outbox not updated", update) // otherwise, the alert would be sent again each second
	return err == nil
}

// retry calls f until it returns nil or ctx ends, at least once. The wait between two calls grows from a
// second to a minute.
func (s *sender) retry(ctx context.Context, message string, f func() error) {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := f()
		if err == nil || ctx.Err() != nil {
			return
		}
		s.logger.WarnContext(ctx, message, "error", err, "retry_in", wait.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// retryWait returns 2 s, 4 s, 8 s … up to about a minute.
func retryWait(attempts int) time.Duration { return 2 * time.Second << min(attempts, 5) }
