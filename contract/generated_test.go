package contract_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/contract/generated"
	"example.com/msgpush/msgpushtest"
)

func TestGeneratedCodeIsUpToDate(t *testing.T) {
	if testing.Short() {
		t.Skip("builds oapi-codegen")
	}
	file := filepath.Join(t.TempDir(), "generated.go")
	cmd := exec.CommandContext(t.Context(), "go", "tool", "oapi-codegen", "-config", "generated/oapi-codegen.yaml", "-o", file, "../openapi.json")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	got, err := os.ReadFile("generated/generated.go")
	require.NoError(t, err)
	if string(got) != string(want) {
		t.Error("generated/generated.go is out of date: run go generate ./...")
	}
}

// plain returns a value with structs as maps by JSON name, integers as int64 and
// strings, such as a [msgpush.Secret], as string. Nil pointers are left out.
func plain(t *testing.T, v reflect.Value) any {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		return plain(t, v.Elem())
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.String:
		return v.String()
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(t, v.Index(i))
		}
		return list
	case reflect.Struct:
		fields := map[string]any{}
		for _, f := range reflect.VisibleFields(v.Type()) {
			value := v.FieldByIndex(f.Index)
			if f.Anonymous || value.Kind() == reflect.Pointer && value.IsNil() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[name] = plain(t, value)
		}
		return fields
	default:
		require.Fail(t, "unexpected kind", "%v", v.Type())
		return nil
	}
}

// assertSame checks that two structs have the same fields, by JSON name, with the same
// values.
func assertSame(t *testing.T, want, got any) {
	t.Helper()
	assert.Equal(t, plain(t, reflect.ValueOf(want)), plain(t, reflect.ValueOf(got)))
}

// newGeneratedClient returns a generated client of the fake server.
func newGeneratedClient(t *testing.T, server *msgpushtest.Server, v *validator) *generated.ClientWithResponses {
	t.Helper()
	client, err := generated.NewClientWithResponses(server.URL,
		generated.WithHTTPClient(&http.Client{Transport: v}),
		generated.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("access-key", server.AccessKey())
			return nil
		}))
	require.NoError(t, err)
	return client
}

func TestGeneratedClientReadsTheSameRecords(t *testing.T) {
	server, client, v := newServer(t)
	other := newGeneratedClient(t, server, v)
	records := server.Records()
	const size = 2

	t.Run("mail channels", func(t *testing.T) {
		require.NotEmpty(t, records.MailChannels)
		for _, record := range records.MailChannels {
			id := strconv.FormatInt(record.ID, 10)
			want, err := client.MailDetail(t.Context(), id)
			require.NoError(t, err)
			got, err := other.MailDetailWithResponse(t.Context(), &generated.MailDetailParams{MailId: &id})
			require.NoError(t, err)
			assertSame(t, want, got.JSON200.Data)
			assertSame(t, record, got.JSON200.Data)
			assert.NotEmpty(t, record.Password)
			assert.Equal(t, string(record.Password), *got.JSON200.Data.Password)
		}
	})
	t.Run("official-account channels", func(t *testing.T) {
		var list []any
		for want, err := range client.MPPages(t.Context(), msgpush.PageRequest{PageSize: size}) {
			require.NoError(t, err)
			got, err := other.MpListWithResponse(t.Context(), generated.PageRequest{Current: &want.PageNum, PageSize: new(size)})
			require.NoError(t, err)
			assertSame(t, want, got.JSON200.Data)
			list = append(list, plain(t, reflect.ValueOf(got.JSON200.Data.List)).([]any)...)
		}
		assert.Equal(t, plain(t, reflect.ValueOf(records.MPChannels)), list)
	})
	t.Run("message rules", func(t *testing.T) {
		var list []any
		for want, err := range client.ForwardRulePages(t.Context(), msgpush.PageRequest{PageSize: size}) {
			require.NoError(t, err)
			got, err := other.ForwardRuleListWithResponse(t.Context(), generated.PageRequest{Current: &want.PageNum, PageSize: new(size)})
			require.NoError(t, err)
			assertSame(t, want, got.JSON200.Data)
			list = append(list, plain(t, reflect.ValueOf(got.JSON200.Data.List)).([]any)...)
		}
		assert.Equal(t, plain(t, reflect.ValueOf(records.ForwardRules)), list)
	})
	t.Run("trigger records", func(t *testing.T) {
		var list []any
		for want, err := range client.ForwardLogPages(t.Context(), msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{PageSize: size}}) {
			require.NoError(t, err)
			got, err := other.ForwardLogListWithResponse(t.Context(), generated.TriggerRecordRequest{Current: &want.PageNum, PageSize: new(size)})
			require.NoError(t, err)
			assertSame(t, want, got.JSON200.Data)
			list = append(list, plain(t, reflect.ValueOf(got.JSON200.Data.List)).([]any)...)
		}
		assert.Equal(t, plain(t, reflect.ValueOf(records.ForwardLogs)), list)
	})
	t.Run("filtered trigger records", func(t *testing.T) {
		want, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{Params: msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)}})
		require.NoError(t, err)
		require.NotEmpty(t, want.List)
		got, err := other.ForwardLogListWithResponse(t.Context(), generated.TriggerRecordRequest{
			Params: &generated.TriggerRecordParams{RuleId: new(301), MatchResult: new(0)},
		})
		require.NoError(t, err)
		assertSame(t, want, got.JSON200.Data)
	})
	all, _ := v.result()
	assert.Empty(t, all)
}

// A generatedServer responds with recorded bodies, through the types and the handlers
// of the generated code.
type generatedServer struct {
	t        *testing.T
	requests []any // as plain returns them
}

// response decodes a recorded response into a generated type.
func response[T any](name string) (T, error) {
	var v T
	body, err := os.ReadFile(filepath.Join("../testdata/responses", name+".json"))
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(body, &v)
}

func (s *generatedServer) record(v any) {
	s.requests = append(s.requests, plain(s.t, reflect.ValueOf(v)))
}

func (s *generatedServer) MailDetail(_ context.Context, r generated.MailDetailRequestObject) (generated.MailDetailResponseObject, error) {
	s.record(r.Params)
	return response[generated.MailDetail200JSONResponse]("mail_detail")
}

func (s *generatedServer) MpList(_ context.Context, r generated.MpListRequestObject) (generated.MpListResponseObject, error) {
	s.record(r.Body)
	return response[generated.MpList200JSONResponse]("mp_list")
}

func (s *generatedServer) ForwardRuleList(_ context.Context, r generated.ForwardRuleListRequestObject) (generated.ForwardRuleListResponseObject, error) {
	s.record(r.Body)
	return response[generated.ForwardRuleList200JSONResponse]("forward_rule_list")
}

func (s *generatedServer) ForwardLogList(_ context.Context, r generated.ForwardLogListRequestObject) (generated.ForwardLogListResponseObject, error) {
	s.record(r.Body)
	return response[generated.ForwardLogList200JSONResponse]("forward_log_list")
}

func TestClientReadsGeneratedServer(t *testing.T) {
	service := &generatedServer{t: t}
	server := httptest.NewServer(generated.Handler(generated.NewStrictHandler(service, nil)))
	defer server.Close()
	v := newValidator(load(t), http.DefaultTransport)
	client, err := msgpush.NewClient(server.URL, "test-key", msgpush.WithHTTPClient(&http.Client{Transport: v}))
	require.NoError(t, err)

	mail, err := client.MailDetail(t.Context(), "a/b 5")
	require.NoError(t, err)
	wantMail, err := response[generated.MailDetail200JSONResponse]("mail_detail")
	require.NoError(t, err)
	assertSame(t, wantMail.Data, mail)
	assert.Equal(t, "pä55wörd-密码", string(mail.Password))

	page := msgpush.PageRequest{Current: 7, PageSize: 50}
	channels, err := client.MPList(t.Context(), page)
	require.NoError(t, err)
	wantChannels, err := response[generated.MpList200JSONResponse]("mp_list")
	require.NoError(t, err)
	assertSame(t, wantChannels.Data, channels)
	assert.Len(t, channels.List, 2)

	rules, err := client.ForwardRuleList(t.Context(), page)
	require.NoError(t, err)
	wantRules, err := response[generated.ForwardRuleList200JSONResponse]("forward_rule_list")
	require.NoError(t, err)
	assertSame(t, wantRules.Data, rules)
	assert.Len(t, rules.List, 2)

	filter := msgpush.ForwardLogRequest{PageRequest: page, Params: msgpush.ForwardLogParams{RuleID: new(int64(9007199254740993)), MatchResult: new(0)}}
	logs, err := client.ForwardLogList(t.Context(), filter)
	require.NoError(t, err)
	wantLogs, err := response[generated.ForwardLogList200JSONResponse]("forward_log_list")
	require.NoError(t, err)
	assertSame(t, wantLogs.Data, logs)
	assert.Len(t, logs.List, 2)

	assert.Equal(t, []any{
		map[string]any{"mailId": "a/b 5"},
		plain(t, reflect.ValueOf(page)),
		plain(t, reflect.ValueOf(page)),
		plain(t, reflect.ValueOf(filter)),
	}, service.requests)
	all, exchanges := v.result()
	assert.Empty(t, all)
	assert.Equal(t, 4, exchanges)
}
