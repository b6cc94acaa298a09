package msgpush_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/internal/tests/testcalls"
)

func TestDecodesSuccessfulResponses(t *testing.T) {
	tests := []struct {
		name, body string
		want       msgpush.MailChannel
	}{
		{"member with a zero value", `{"code":200,"msg":"","data":{"id":0}}`, msgpush.MailChannel{}},
		{"only code and data", `{"code":200,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
		{"data before the code", `{"data":{"id":7},"code":200}`, msgpush.MailChannel{ID: 7}},
		{"white space", "\r\n { \"code\" : 200 , \"data\" : { \"id\" : 7 } } \n", msgpush.MailChannel{ID: 7}},
		{"unknown members",
			`{"traceId":"x","code":200,"extra":{"a":[1]},"data":{"id":7,"owner":{"id":"x"}}}`, msgpush.MailChannel{ID: 7}},
		{"null members",
			`{"code":200,"msg":null,"data":{"id":7,"mailName":null,"smtpPort":null,"password":null,"createTime":null}}`,
			msgpush.MailChannel{ID: 7}},
		{"duplicate members: last wins", `{"code":200,"data":{"id":1,"id":7}}`, msgpush.MailChannel{ID: 7}},
		{"duplicate code: last wins", `{"code":500,"code":200,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
		{"duplicate data: objects are merged", `{"code":200,"data":{"id":1,"mailName":"a"},"data":{"id":7,"account":"b"}}`,
			msgpush.MailChannel{ID: 7, MailName: "a", Account: "b"}},
		{"other letter case", `{"Code":200,"DATA":{"ID":7}}`, msgpush.MailChannel{ID: 7}},
		{"id 0 in other letter case", `{"code":200,"data":{"ID":0}}`, msgpush.MailChannel{}},
		{"only a null id", `{"code":200,"data":{"id":null}}`, msgpush.MailChannel{}},
		{"a value and no id", `{"code":200,"data":{"smtpPort":25}}`, msgpush.MailChannel{SMTPPort: 25}},
		{"data that is null and then an object", `{"code":200,"data":null,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mail, err := fixtures.NewClient(t, fixtures.Respond(200, tt.body, "Content-Type", "text/plain")).
				MailDetail(t.Context(), "7")
			require.NoError(t, err)
			assert.Equal(t, &tt.want, mail)

			var envelope msgpush.Envelope[msgpush.MailChannel]
			require.NoError(t, json.Unmarshal([]byte(tt.body), &envelope))
			assert.Equal(t, tt.want, envelope.Data, "encoding/json decodes the same data")
		})
	}
}

func TestUndecodableEnvelopeIsDecodeError(t *testing.T) {
	tests := map[string]struct{ body, want string }{
		"cut": {
			body: `{"code":200,"data":{"password":"hunter2`,
			want: "the JSON ends too early, after",
		},
		"text after the envelope": {
			body: `{"code":200,"data":{}} hunter2`,
			want: "expected a JSON envelope, found invalid JSON",
		},
		"null": {
			body: `null`,
			want: "expected an envelope with a code, found none",
		},
		"array": {
			body: `["hunter2"]`,
			want: "cannot decode the response: expected a JSON envelope, found array",
		},
		"string": {
			body: `"hunter2"`,
			want: "expected a JSON envelope, found string",
		},
		"no code": {
			body: `{"msg":"hunter2","data":{}}`,
			want: "expected an envelope with a code, found none",
		},
		"null code": {
			body: `{"code":null,"data":{}}`,
			want: "expected an envelope with a code, found none",
		},
		"code is a string": {
			body: `{"code":"hunter2","data":{}}`,
			want: "code: expected integer, found string",
		},
		"code is a fraction": {
			body: `{"code":200.5,"data":{}}`,
			want: "code: expected integer, found number",
		},
		"msg is an object": {
			body: `{"code":200,"msg":{},"data":{}}`,
			want: "msg: expected string, found object",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assertUndecodable(t, "application/json", tt.body, tt.want) })
	}
	t.Run("empty", func(t *testing.T) { assertUndecodable(t, "", "", "the JSON ends too early, after") })
	t.Run("HTML", func(t *testing.T) {
		assertUndecodable(t, "text/html; charset=utf-8", "<html>hunter2",
			"expected a JSON envelope, found invalid JSON", `content type "text/html; charset=utf-8"`)
	})
}

func TestUndecodableDataIsDecodeError(t *testing.T) {
	tests := map[string]struct{ body, want string }{
		"missing": {
			body: `{"code":200,"msg":"hunter2"}`,
			want: "data: expected a value, found none",
		},
		"null": {
			body: `{"code":200,"data":null}`,
			want: "data: expected a value, found none",
		},
		"an object and then null": {
			body: `{"code":200,"data":{},"data":null}`,
			want: "data: expected a value, found none",
		},
		"string": {
			body: `{"code":200,"data":"hunter2"}`,
			want: "data: expected object, found string",
		},
		"empty object": {
			body: `{"code":200,"data":{}}`,
			want: ", found none",
		},
		"only unknown members": {
			body: `{"code":200,"data":{"hunter2":1}}`,
			want: ", found none",
		},
		"array": {
			body: `{"code":200,"data":["hunter2"]}`,
			want: "data: expected object, found array",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assertUndecodable(t, "application/json", tt.body, tt.want) })
	}
}

// assertUndecodable checks that each operation with data returns a DecodeError for a response. The error has
// the texts and the response, and does not show "hunter2".
func assertUndecodable(t *testing.T, contentType, body string, texts ...string) {
	t.Helper()
	client := fixtures.NewClient(t, fixtures.Respond(http.StatusOK, body, "Content-Type", contentType))
	for _, call := range testcalls.WithData() {
		data, err := call.Do(t.Context(), client)
		assert.Nil(t, data)
		decodeErr := fixtures.OnlyError[*msgpush.DecodeError](t, err)
		assert.Equal(t, call.Operation, decodeErr.Operation)
		assert.Equal(t, contentType, decodeErr.Header.Get("Content-Type"))
		assert.Equal(t, body, string(decodeErr.Body))
		for _, want := range texts {
			assert.ErrorContains(t, err, want)
		}
		fixtures.AssertHidden(t, "hunter2", err, *decodeErr)
	}
}

// The key of a map may be a secret. Whether encoding/json names it depends on its version.
// A memberRecord has members whose names an error may show, and maps, whose keys may be secret.
type memberRecord struct {
	ID   int                       `json:"id"`
	Keys map[string]map[string]int `json:"keys"`
}

func TestDecodeErrorNamesTheMember(t *testing.T) {
	detail := func(c *msgpush.Client) error { _, err := c.MailDetail(t.Context(), "1"); return err }
	list := func(c *msgpush.Client) error { _, err := c.MPList(t.Context(), msgpush.PageRequest{}); return err }
	tests := map[string]memberTest{
		"string of a detail": {
			call: detail,
			data: `{"id":1,"mailName":[737373]}`,
			want: "data.mailName: expected string, found array",
		},
		"id of a detail": {
			call: detail,
			data: `{"id":"hunter2"}`,
			want: ": data.id: expected integer, found string",
		},
		"number that is too large": {
			call: detail,
			data: `{"smtpPort":73737373737373737373737373}`,
			want: ": data.smtpPort: expected integer, found number",
		},
		"record of a list": {
			call: list,
			data: `{"list":[{"id":1},{"nickName":[737373]}]}`,
			want: "nickName: expected string, found array",
		},
		"list": {
			call: list,
			data: `{"list":{"hunter2":1}}`,
			want: ": data.list: expected array, found object",
		},
		"struct": {
			call: fixtures.CallFor[memberRecord](t),
			data: `{"id":"hunter2"}`,
			want: ": data.id: expected integer, found string",
		},
		"unsigned integer": {
			call: fixtures.CallFor[[]uint16](t),
			data: `["hunter2"]`,
			want: ": data: expected integer, found string",
		},
	}
	for name, tt := range tests {
		t.Run(name, tt.run)
	}
}

func TestDecodeErrorShowsNoKeyOfAMap(t *testing.T) {
	maps, structs := fixtures.CallFor[map[string]map[string]int](t), fixtures.CallFor[map[string]memberRecord](t)
	tests := map[string]memberTest{
		"map of maps": {
			call: maps,
			data: `{"hunter2":"x"}`,
			want: ": data: expected object, found string",
		},
		"map in a map": {
			call: maps,
			data: `{"hunter2":{"hunter2":"x"}}`,
			want: ": data: expected integer, found string",
		},
		"struct in a map": {
			call: structs,
			data: `{"hunter2":{"id":"hunter2"}}`,
			want: ": data: expected integer, found string",
		},
		"maps in a struct in a map": {
			call: structs,
			data: `{"a":{"keys":{"hunter2":{"hunter2":[]}}}}`,
			want: ": data: expected integer, found array",
		},
		"float": {
			call: fixtures.CallFor[map[string]float64](t),
			data: `{"a":"hunter2"}`,
			want: ": data: expected number, found string",
		},
		"map in a struct": {
			call: fixtures.CallFor[memberRecord](t),
			data: `{"keys":{"hunter2":5}}`,
			want: ": data.keys: expected object, found number",
		},
		"page": {
			call: fixtures.CallFor[msgpush.Page[map[string]int]](t),
			data: `{"list":[{"hunter2":"x"}]}`,
			want: ": 1 of 1 records left out: data.list[0]: expected integer, found string",
		},
		"type that decodes itself": {
			call: fixtures.CallFor[ownMap](t),
			data: `{"hunter2":"x"}`,
			want: ": data: expected integer, found string",
		},
	}
	for name, tt := range tests {
		t.Run(name, tt.run)
	}
}

// A memberTest is a call whose data cannot be decoded, and a text of its error.
type memberTest struct {
	call       func(*msgpush.Client) error
	data, want string
}

// run checks that the error shows no "hunter2" or "737373" of the data.
func (tt memberTest) run(t *testing.T) {
	err := tt.call(fixtures.NewClient(t, fixtures.Respond(200, fixtures.SuccessOf(tt.data))))
	decodeErr := fixtures.OnlyError[*msgpush.DecodeError](t, err)
	assert.ErrorContains(t, err, tt.want)
	fixtures.AssertHidden(t, "hunter2", err, decodeErr.Err)
	fixtures.AssertHidden(t, "737373", err, decodeErr.Err)
	assert.ErrorAs(t, err, new(*json.UnmarshalTypeError), "the error of the decoder is wrapped")
}

func TestWithUnmarshalDecodesEverySuccess(t *testing.T) {
	var got []string
	client := fixtures.NewClient(t, fixtures.Succeed, msgpush.WithUnmarshal(func(data []byte, v any) error {
		got = append(got, string(data))
		return json.Unmarshal([]byte(`{"code":200,"data":{"id":7,"list":[]}}`), v)
	}))
	for _, kind := range fixtures.KindsOfCalls() {
		got = nil
		_, err := kind.Do(t.Context(), client)
		require.NoError(t, err)
		assert.Equal(t, []string{fixtures.Success}, got, "%s is decoded once", kind.Name)
	}
	mail, err := client.MailDetail(t.Context(), "1")
	require.NoError(t, err)
	assert.Equal(t, &msgpush.MailChannel{ID: 7}, mail, "what the function sets")
}

// errOther is the error of otherDecoder. No error text may contain its text.
var errOther = errors.New("other decoder: hunter2")

// otherDecoder accepts the same input as encoding/json and returns errOther for all
// other input.
func otherDecoder(data []byte, v any) error {
	if json.Unmarshal(data, v) != nil {
		return errOther
	}
	return nil
}

func TestErrorTypeDoesNotDependOnDecoder(t *testing.T) {
	for _, body := range []string{
		``,
		`<html>hunter2`,
		`null`,
		`[1]`,
		`{"code":200,"data":{}} x`,
		`{"code":200,"data":{"id":`,
		`{"msg":"x"}`,
		`{"code":"200"}`,
		`{"code":200,"msg":5,"data":{}}`,
		`{"code":200}`,
		`{"code":200,"data":null}`,
		`{"code":200,"data":"x"}`,
		`{"code":200,"data":{"id":"x","list":5}}`,
		`{"code":200,"data":{}}`,
		`{"code":200,"data":{"id":1,"list":[{}]}}`,
		`{"code":500,"msg":"no","data":"x"}`,
		`{"code":500,"msg":"no","data":{"id":"x"}}`,
		`{"code":0}`,
	} {
		for _, status := range []int{200, 201, 400, 502} {
			response := fixtures.Respond(status, body)
			standard := fixtures.NewClient(t, response)
			other := fixtures.NewClient(t, response, msgpush.WithUnmarshal(otherDecoder))
			for _, c := range testcalls.All() {
				_, want := c.Do(t.Context(), standard)
				_, got := c.Do(t.Context(), other)
				require.IsType(t, want, got, "%s: %d %s", c.Operation, status, body)
				if _, ok := errors.AsType[*msgpush.APIError](got); ok {
					assert.EqualError(t, got, want.Error(), c.Operation)
				} else {
					fixtures.AssertHidden(t, "hunter2", got)
				}
			}
		}
	}
}

func TestErrorOfDecoderIsWrapped(t *testing.T) {
	reject := func([]byte, any) error { return errOther }
	for _, body := range []string{`<html>`, `{"code":200,`} {
		_, err := fixtures.NewClient(t, fixtures.Respond(200, body), msgpush.WithUnmarshal(reject)).
			MailDetail(t.Context(), "1")
		fixtures.OnlyError[*msgpush.DecodeError](t, err)
		assert.ErrorIs(t, err, errOther, body)
		fixtures.AssertHidden(t, "hunter2", err)
	}
	_, err := fixtures.NewClient(t, fixtures.Respond(200, `{"code":500,"msg":"no"}`), msgpush.WithUnmarshal(reject)).
		MailDetail(t.Context(), "1")
	fixtures.OnlyError[*msgpush.APIError](t, err) // an error response is decoded with encoding/json
	_, err = fixtures.NewClient(t, fixtures.Succeed, msgpush.WithUnmarshal(func([]byte, any) error { return nil })).
		MailDetail(t.Context(), "1")
	fixtures.OnlyError[*msgpush.DecodeError](t, err) // the function has set nothing
}

func FuzzEnvelope(f *testing.F) {
	for _, body := range []string{
		`{"code":200,"msg":"ok","data":{"id":1}}`, `{"code":200,"data":{"list":null}}`, `{"code":200,"data":null}`,
		`{"code":500,"msg":"no","data":"why"}`, `{"code":1e400}`, `{"code":200,"data":[[]]}`, `<html>`, ``, `null`, "\xff",
		`{"code":200,"data":{"list":[{"id":1},null,{"id":"x"}]}}`, `{"code":200,"data":{"password":1}}`,
	} {
		f.Add(200, "application/json", []byte(body))
		f.Add(201, "application/json", []byte(body))
		f.Add(502, "text/html", []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		client := fixtures.NewClient(t, fixtures.Respond(status, string(body), "Content-Type", contentType))
		for _, kind := range fixtures.KindsOfCalls() {
			value, err := kind.Do(t.Context(), client)
			if err == nil {
				assert.Equal(t, 2, status/100)
				if kind.HasData && value == nil {
					t.Error("neither data nor an error")
				}
				continue
			}
			fixtures.AssertOneLine(t, err.Error())
			types := fixtures.ErrorTypes(err)
			require.Len(t, types, 1)
			switch match := types[0].(type) { //nolint:errorlint // errorTypes has unwrapped it
			case *msgpush.APIError:
				assert.Equal(t, status, match.HTTPStatus)
			case *msgpush.DecodeError:
				assert.Equal(t, status, match.HTTPStatus)
				assert.Equal(t, 2, status/100)
				assert.Equal(t, string(body), string(match.Body))
			default:
				t.Errorf("%T: %v", err, err)
			}
		}
	})
}

type ownMap map[string]int

func (m *ownMap) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*map[string]int)(m)) }

func TestErrorOfTruncatedJSONMatchesEOF(t *testing.T) {
	body := fixtures.SuccessOf(`{"id":1,"mailName":"\u00e4\"","smtpPort":25,"x":[true,null,-1.5e3]}`)
	for cut := range len(body) {
		want := io.ErrUnexpectedEOF
		if cut == 0 {
			want = io.EOF
		}
		for _, unmarshal := range []func([]byte, any) error{json.Unmarshal, otherDecoder} {
			_, err := fixtures.NewClient(t, fixtures.Respond(200, body[:cut]), msgpush.WithUnmarshal(unmarshal)).
				MailDetail(t.Context(), "1")
			fixtures.OnlyError[*msgpush.DecodeError](t, err)
			assert.ErrorIs(t, err, want, body[:cut])
		}
	}
}
