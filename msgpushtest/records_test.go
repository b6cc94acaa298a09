package msgpushtest_test

import (
	"fmt"
	"go/doc"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/msgpushtest"
)

func TestSampleRecordsAreConsistent(t *testing.T) {
	seed := msgpushtest.SampleRecords()
	rules := map[int64]msgpush.ForwardRule{}
	for _, rule := range seed.ForwardRules {
		rules[rule.ID] = rule
	}
	ids := map[int64]bool{}
	results := map[int]bool{}
	for i, log := range seed.ForwardLogs {
		rule := rules[log.RuleID]
		assert.Equal(t, rule.RuleName, log.RuleName)
		assert.Equal(t, rule.SourceType, log.SourceType)
		assert.LessOrEqual(t, string(rule.CreateTime), string(log.CreateTime))
		if i > 0 {
			assert.Less(t, string(log.CreateTime), string(seed.ForwardLogs[i-1].CreateTime), "newest first")
		}
		assert.Equal(t, log.MatchResult == msgpushtest.SampleFailed, log.ErrorMessage != "")
		ids[log.ID] = true
		results[log.MatchResult] = true
	}
	assert.Len(t, ids, len(seed.ForwardLogs))
	assert.Greater(t, len(results), 1)
}

func TestCommentOfSampleRecordsNamesTheirIDs(t *testing.T) {
	_, p := fixtures.ParsePackage(t, ".")
	i := slices.IndexFunc(p.Types, func(typ *doc.Type) bool { return typ.Name == "Records" })
	require.GreaterOrEqual(t, i, 0)
	functions := p.Types[i].Funcs // the functions that return Records
	i = slices.IndexFunc(functions, func(f *doc.Func) bool { return f.Name == "SampleRecords" })
	require.GreaterOrEqual(t, i, 0)
	for field, list := range reflect.ValueOf(msgpushtest.SampleRecords()).Fields() {
		for index := range list.Len() {
			isEnd := index == 0 || index == list.Len()-1
			id := strconv.FormatInt(list.Index(index).FieldByName("ID").Int(), 10)
			assert.True(t, !isEnd || strings.Contains(functions[i].Doc, id),
				"msgpushtest/records.go: the comment of SampleRecords must name record %s of %s", id, field.Name)
		}
	}
}

// logsWith returns trigger records. The second one has a creation time.
func logsWith(value msgpush.DateTime) msgpushtest.Records {
	return msgpushtest.Records{ForwardLogs: []msgpush.ForwardLog{
		{ID: 1, CreateTime: "2026-11-05 18:00:00"},
		{ID: 2, CreateTime: value},
	}}
}

func TestValidRecordsAreStored(t *testing.T) {
	tests := map[string]msgpushtest.Records{
		"date and time": logsWith("2026-02-28 23:59:59"),
		"empty time":    logsWith(""),
		"hour that a clock change skips in some time zones": logsWith("2026-03-29 02:30:00"),
		"one id in two lists": {
			MPChannels:   []msgpush.MPChannel{{ID: 1}},
			ForwardRules: []msgpush.ForwardRule{{ID: 1}},
		},
	}
	for name, records := range tests {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, records.Validate())
			set := newServer(t)
			set.SetRecords(records)
			assert.Equal(t, records, set.Records())
			updated := newServer(t)
			updated.Update(func(r *msgpushtest.Records) { *r = records })
			assert.Equal(t, records, updated.Records())
		})
	}
}

// assertInvalid checks that Validate returns an error that contains text, and that a server panics with
// the error and keeps its records.
func assertInvalid(t *testing.T, records msgpushtest.Records, text string) {
	t.Helper()
	err := records.Validate()
	require.ErrorContains(t, err, text)
	server := newServer(t)
	assert.PanicsWithValue(t, err.Error(), func() { server.SetRecords(records) })
	assert.PanicsWithValue(t, err.Error(), func() {
		server.Update(func(r *msgpushtest.Records) { *r = records })
	})
	assert.Equal(t, msgpushtest.SampleRecords(), server.Records(), "the records do not change")
	server.SetRecords(msgpushtest.Records{}) // does not wait for the update that has panicked
}

func TestTimeInAnotherFormatIsRejected(t *testing.T) {
	tests := map[string]msgpush.DateTime{
		"words":                       "yesterday",
		"date only":                   "2026-02-28",
		"day that does not exist":     "2026-02-30 00:00:00",
		"hour 24":                     "2026-02-28 24:00:00",
		"one digit":                   "2026-02-28 1:00:00",
		"one digit and a fraction":    "2026-02-28 1:00:00.5",
		"hour of one digit, and more": "2026-02-28 1:00:00.",
		"time zone":                   "2026-02-28 10:00:00Z",
		"RFC 3339":                    "2026-02-28T10:00:00Z",
		"RFC 3339 without a zone":     "2026-02-28T10:00:00",
	}
	for name, value := range tests {
		t.Run(name, func(t *testing.T) {
			assertInvalid(t, logsWith(value), fmt.Sprintf("msgpushtest: ForwardLogs[1].CreateTime is %q", value))
		})
	}
}

func TestRecordsThatAreNotValidAreRejected(t *testing.T) {
	logs := func(ids ...int64) (r msgpushtest.Records) {
		for _, id := range ids {
			r.ForwardLogs = append(r.ForwardLogs, msgpush.ForwardLog{ID: id})
		}
		return r
	}
	tests := []struct {
		name    string
		records msgpushtest.Records
		want    string
	}{
		{
			name:    "time of a mail channel",
			records: msgpushtest.Records{MailChannels: []msgpush.MailChannel{{CreateTime: "x"}}},
			want:    "MailChannels[0].CreateTime",
		},
		{
			name:    "time of a rule",
			records: msgpushtest.Records{ForwardRules: []msgpush.ForwardRule{{CreateTime: "x"}}},
			want:    "ForwardRules[0].CreateTime",
		},
		{
			name:    "time of a channel",
			records: msgpushtest.Records{MPChannels: []msgpush.MPChannel{{UpdateTime: "x"}}},
			want:    "MPChannels[0].UpdateTime",
		},
		{
			name:    "id twice, in no order",
			records: logs(7, 9, 7),
			want:    "ForwardLogs has two records with the id 7: give each record its own id",
		},
		{
			name:    "no ids",
			records: logs(0, 0),
			want:    "two records with the id 0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { assertInvalid(t, tt.records, tt.want) })
	}
}

func TestEachListIsValidated(t *testing.T) {
	for field := range reflect.ValueOf(msgpushtest.Records{}).Fields() {
		var records msgpushtest.Records
		list := reflect.ValueOf(&records).Elem().FieldByName(field.Name)
		list.Set(reflect.MakeSlice(list.Type(), 2, 2))
		assert.ErrorContains(t, records.Validate(), field.Name+" has two records with the id 0",
			"add the list to Validate in msgpushtest/records.go")
	}
}

func TestInvalidRecordsOfUpdateBetweenPagesFailTheTest(t *testing.T) {
	test := &tb{}
	server := msgpushtest.New(test)
	server.UpdateBetweenPages(func(r *msgpushtest.Records) {
		r.MPChannels = append(r.MPChannels, msgpush.MPChannel{UpdateTime: "soon"})
	})
	require.Error(t, listSecondPage(clientOf(server)))
	assert.Empty(t, server.Records().MPChannels)
	test.end()
	require.Len(t, test.errors, 1)
	assert.Contains(t, test.errors[0], `UpdateBetweenPages: MPChannels[0].UpdateTime is "soon"`)
}

func TestRecordsAreCopied(t *testing.T) {
	server := newServer(t)
	set := msgpushtest.SampleRecords()
	server.SetRecords(set)
	for _, copied := range []msgpushtest.Records{set, server.Records()} {
		for _, records := range reflect.ValueOf(copied).Fields() {
			if records.Kind() == reflect.Slice && records.Len() > 0 {
				records.Index(0).SetZero()
			}
		}
		want := reflect.ValueOf(msgpushtest.SampleRecords())
		for field, got := range reflect.ValueOf(server.Records()).Fields() {
			isSame := reflect.DeepEqual(want.FieldByName(field.Name).Interface(), got.Interface())
			assert.True(t, isSame, "%s: add a line to clone in msgpushtest/records.go", field.Name)
		}
	}
}
