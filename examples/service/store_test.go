package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// eachDatabase runs a test with the name of an empty database of each kind.
func eachDatabase(t *testing.T, test func(t *testing.T, name string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "service.db")) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, newPostgresDatabase(t)) })
}

func openTestStore(t *testing.T, name string) *store {
	t.Helper()
	s, err := openStore(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(s.close)
	return s
}

// alertIDs returns the ids in the outbox.
func (s *store) alertIDs(t *testing.T) []int64 {
	t.Helper()
	alerts, err := s.dueAlerts(t.Context(), time.Now().Add(time.Hour))
	require.NoError(t, err)
	var ids []int64
	for _, a := range alerts {
		ids = append(ids, a.recordID)
	}
	return ids
}

func TestOnlyNewFailuresCauseAlerts(t *testing.T) {
	success := msgpush.ForwardLog{ID: 3}
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		batch := follow.Batch[msgpush.ForwardLog]{
			New:     []msgpush.ForwardLog{failure(2), success},
			History: []msgpush.ForwardLog{failure(1)},
			Since:   "2026-01-02 03:04:05",
		}
		added, err := s.add(t.Context(), batch)
		require.NoError(t, err)
		assert.Equal(t, 3, added)
		assert.Equal(t, []int64{2}, s.alertIDs(t))

		require.NoError(t, s.removeAlert(t.Context(), 2))
		batch.New = append(batch.New, failure(4))
		batch.Since = "2026-02-02 03:04:05"
		added, err = s.add(t.Context(), batch)
		require.NoError(t, err)
		assert.Equal(t, 1, added)
		assert.Equal(t, []int64{4}, s.alertIDs(t), "a stored record causes no second alert")

		again := openTestStore(t, name)
		known, since, err := again.position(t.Context())
		require.NoError(t, err)
		assert.ElementsMatch(t, []int64{1, 2, 3, 4}, known)
		assert.EqualValues(t, "2026-01-02 03:04:05", since, "the first one")
	})
}

func TestRecordAndAlertAreOneTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		batch := follow.Batch[msgpush.ForwardLog]{New: []msgpush.ForwardLog{failure(1)}, Since: "2026-01-02 03:04:05"}
		require.NoError(t, s.exec(t.Context(), "ALTER TABLE outbox RENAME TO missing"))
		_, err := s.add(t.Context(), batch)
		require.Error(t, err)
		known, since, err := s.position(t.Context())
		require.NoError(t, err)
		assert.Empty(t, known)
		assert.Empty(t, since)

		require.NoError(t, s.exec(t.Context(), "ALTER TABLE missing RENAME TO outbox"))
		_, err = s.add(t.Context(), batch)
		require.NoError(t, err)
		assert.Equal(t, []int64{1}, s.alertIDs(t))
	})
}

func TestAnyTextIsStored(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		r := failure(1)
		r.RuleName = "严重\x00'\"\\ \u2028"
		_, err := s.add(t.Context(), follow.Batch[msgpush.ForwardLog]{New: []msgpush.ForwardLog{r}})
		require.NoError(t, err)
		alerts, err := s.dueAlerts(t.Context(), time.Now())
		require.NoError(t, err)
		require.Len(t, alerts, 1)
		assert.Contains(t, alerts[0].body, `"ruleName":"严重\u0000'\"\\ \u2028"`)
	})
}

func TestNameOfAFileIsNotParsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b?mode=memory#%41.db")
	openTestStore(t, file)
	assert.FileExists(t, file)
}

func TestDatabaseThatCannotBeOpened(t *testing.T) {
	tests := map[string]string{
		"no directory":   filepath.Join(t.TempDir(), "missing", "service.db"),
		"malformed URL":  "postgres://user:secret%zz@host/name",
		"unknown option": "postgres://user:secret@host/name?sslmode=x",
	}
	for name, database := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := openStore(t.Context(), database)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}
