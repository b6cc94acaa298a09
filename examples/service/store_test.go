package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/follow/followtest"
)

// eachDatabase runs a test with the name of an empty database of each kind.
func eachDatabase(t *testing.T, test func(t *testing.T, name string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "service.db")) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, newPostgresDatabase(t)) })
}

// openTestStore opens a store as the service does, which loads the position first.
func openTestStore(t *testing.T, name string) *store {
	t.Helper()
	s, err := openStore(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(s.close)
	_, err = s.position.Load(t.Context())
	require.NoError(t, err)
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

func TestOnlyFailuresCauseAlerts(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		require.NoError(t, s.add(t.Context(), batchOf("first", failure(1), msgpush.ForwardLog{ID: 2})))
		second := batchOf("second", failure(3))
		second.Previous = "first"
		require.NoError(t, s.add(t.Context(), second))
		assert.ElementsMatch(t, []int64{1, 3}, s.alertIDs(t))

		position, err := openTestStore(t, name).position.Load(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "second", position)
	})
}

func TestFirstBatchStoresOnlyThePosition(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		position, err := s.position.Load(t.Context())
		require.NoError(t, err)
		assert.Empty(t, position)

		require.NoError(t, s.add(t.Context(), batchOf("first")))
		position, err = s.position.Load(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "first", position)
		assert.Empty(t, s.alertIDs(t))
	})
}

// The response to a COMMIT may be lost. Then the follower stores the same batch again.
func TestCommittedBatchIsNotStoredAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		batch := batchOf("first", failure(1))
		batch.Omitted = []msgpush.OmittedRecord{{ID: 2, JSON: []byte(`{"id":2}`)}}
		require.NoError(t, s.add(t.Context(), batch))
		require.Equal(t, []int64{1, 2}, s.alertIDs(t))
		require.NoError(t, s.removeAlert(t.Context(), 1)) // it was sent
		require.NoError(t, s.removeAlert(t.Context(), 2))

		require.ErrorIs(t, s.add(t.Context(), batch), follow.ErrReplaced)
		assert.Empty(t, s.alertIDs(t))
	})
}

func TestProcessesThatOverlapStoreEachBatchOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		require.NoError(t, followtest.CheckStore(t.Context(), s.position.Load, s.add, failure(1), failure(2)))
		assert.ElementsMatch(t, []int64{1, 2, -1}, s.alertIDs(t))
	})
}

func TestRecordThatCannotBeDecodedCausesAnAlert(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		batch := batchOf("first")
		batch.Omitted = []msgpush.OmittedRecord{
			{ID: 1, JSON: []byte(`{"id":1,"ruleId":"another type"}`)},
			{ID: 2, JSON: []byte("{\"id\":2,\"ruleId\":\"\xff\"}")},
		}
		require.NoError(t, s.add(t.Context(), batch))
		alerts, err := s.dueAlerts(t.Context(), time.Now())
		require.NoError(t, err)
		require.Len(t, alerts, 2)
		assert.Equal(t, `{"id":1,"ruleId":"another type"}`, alerts[0].body)
		assert.Equal(t, "{\"id\":2,\"ruleId\":\"\uFFFD\"}", alerts[1].body)
	})
}

func TestPositionAndAlertAreOneTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		batch := batchOf("first", failure(1))
		require.NoError(t, s.exec(t.Context(), "ALTER TABLE outbox RENAME TO missing"))
		require.Error(t, s.add(t.Context(), batch))
		position, err := s.position.Load(t.Context())
		require.NoError(t, err)
		assert.Empty(t, position)

		require.NoError(t, s.exec(t.Context(), "ALTER TABLE missing RENAME TO outbox"))
		require.NoError(t, s.add(t.Context(), batch))
		assert.Equal(t, []int64{1}, s.alertIDs(t))
	})
}

func TestAnyTextIsStored(t *testing.T) {
	eachDatabase(t, func(t *testing.T, name string) {
		s := openTestStore(t, name)
		r := failure(1)
		r.RuleName = "严重\x00'\"\\ \u2028"
		require.NoError(t, s.add(t.Context(), batchOf("first", r)))
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
