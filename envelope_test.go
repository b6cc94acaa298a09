package msgpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/calls"
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
		{"unknown members", `{"traceId":"x","code":200,"extra":{"a":[1]},"data":{"id":7,"owner":{"id":"x"}}}`, msgpush.MailChannel{ID: 7}},
		{
			"null members", `{"code":200,"msg":null,"data":{"id":7,"mailName":null,"smtpPort":null,"password":null,"createTime":null}}`,
			msgpush.MailChannel{ID: 7},
		},
		{"duplicate members: last wins", `{"code":200,"data":{"id":1,"id":7}}`, msgpush.MailChannel{ID: 7}},
		{"duplicate code: last wins", `{"code":500,"code":200,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
		{
			"duplicate data: objects are merged", `{"code":200,"data":{"id":1,"mailName":"a"},"data":{"id":7,"account":"b"}}`,
			msgpush.MailChannel{ID: 7, MailName: "a", Account: "b"},
		},
		{"other letter case", `{"Code":200,"DATA":{"ID":7}}`, msgpush.MailChannel{ID: 7}},
		{"only a null member", `{"code":200,"data":{"mailName":null}}`, msgpush.MailChannel{}},
		{"data that is null and then an object", `{"code":200,"data":null,"data":{"id":7}}`, msgpush.MailChannel{ID: 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mail, err := newClientWithTransport(t, respond(200, tt.body, "Content-Type", "text/plain")).MailDetail(t.Context(), "7")
			require.NoError(t, err)
			assert.Equal(t, &tt.want, mail)

			var envelope msgpush.Envelope[msgpush.MailChannel]
			require.NoError(t, json.Unmarshal([]byte(tt.body), &envelope))
			assert.Equal(t, tt.want, envelope.Data, "encoding/json decodes the same data")
		})
	}
}

func TestUndecodableResponseIsDecodeError(t *testing.T) {
	const secret = "hunter2"
	tests := []struct {
		name, contentType, body string
		want                    []string
	}{
		{"HTML", "text/html; charset=utf-8", "<html>" + secret, []string{"expected a JSON envelope, found invalid JSON", `content type "text/html; charset=utf-8"`}},
		{"empty", "", "", []string{"the JSON ends too early, after"}},
		{"white space", "text/plain", " \n", []string{"the JSON ends too early, after", `content type "text/plain"`}},
		{"cut", "application/json", `{"code":200,"data":{"password":"` + secret, []string{"the JSON ends too early, after"}},
		{"text after the envelope", "application/json", `{"code":200,"data":{}} ` + secret, []string{"expected a JSON envelope, found invalid JSON"}},
		{"null", "application/json", `null`, []string{"expected an envelope with a code, found none"}},
		{"array", "application/json", `["` + secret + `"]`, []string{"cannot decode the response: expected struct, found array"}},
		{"string", "application/json", `"` + secret + `"`, []string{"expected struct, found string"}},
		{"no code", "application/json", `{"msg":"` + secret + `","data":{}}`, []string{"expected an envelope with a code, found none"}},
		{"null code", "application/json", `{"code":null,"data":{}}`, []string{"expected an envelope with a code, found none"}},
		{"code is a string", "application/json", `{"code":"` + secret + `","data":{}}`, []string{"code: expected int, found string"}},
		{"code is a fraction", "application/json", `{"code":200.5,"data":{}}`, []string{"code: expected int, found number"}},
		{"msg is a number", "application/json", `{"code":200,"msg":5,"data":{}}`, []string{"msg: expected string, found number"}},
		{"data is missing", "application/json", `{"code":200,"msg":"` + secret + `"}`, []string{"data: expected a value, found none"}},
		{"data is null", "application/json", `{"code":200,"data":null}`, []string{"data: expected a value, found none"}},
		{"data is an object and then null", "application/json", `{"code":200,"data":{},"data":null}`, []string{"data: expected a value, found none"}},
		{"data is a string", "application/json", `{"code":200,"data":"` + secret + `"}`, []string{"data: expected struct, found string"}},
		{"data is an empty object", "application/json", `{"code":200,"data":{}}`, []string{"data: expected members of its type, found none"}},
		{"data has only unknown members", "application/json", `{"code":200,"data":{"` + secret + `":1}}`, []string{"data: expected members of its type, found none"}},
		{"data is an array", "application/json", `{"code":200,"data":["` + secret + `"]}`, []string{"data: expected struct, found array"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := newClientWithTransport(t, respond(http.StatusOK, tt.body, "Content-Type", tt.contentType))
			for _, c := range calls.All {
				_, err := c.Do(t.Context(), client)
				decodeErr := onlyError[*msgpush.DecodeError](t, err)
				assert.Equal(t, c.Operation, decodeErr.Operation)
				assert.Equal(t, http.StatusOK, decodeErr.HTTPStatus)
				assert.Equal(t, tt.contentType, decodeErr.Header.Get("Content-Type"))
				assert.Equal(t, tt.body, string(decodeErr.Body))
				for _, want := range tt.want {
					assert.ErrorContains(t, err, want)
				}
				assertHidden(t, secret, err, *decodeErr)
			}
		})
	}
}

func TestDecodeErrorNamesField(t *testing.T) {
	mail := func(c *msgpush.Client) error { _, err := c.MailDetail(t.Context(), "1"); return err }
	mp := func(c *msgpush.Client) error { _, err := c.MPList(t.Context(), msgpush.PageRequest{}); return err }
	tests := []struct {
		call       func(*msgpush.Client) error
		data, want string
	}{
		{mail, `{"id":1,"password":737373}`, "data.password: expected string, found number"},
		{mail, `{"id":"hunter2"}`, "data.id: expected int64, found string"},
		{mail, `{"id":737373.5}`, "data.id: expected int64, found number"},
		{mail, `{"smtpPort":73737373737373737373737373}`, "data.smtpPort: expected int, found number"},
		{mail, `{"smtpSsl":true}`, "data.smtpSsl: expected int, found bool"},
		{mp, `{"list":[{"id":1},{"nickName":737373}]}`, "nickName: expected string, found number"},
		{mp, `{"total":"737373"}`, "data.total: expected int64, found string"},
		{mp, `{"list":{"hunter2":1}}`, "data.list: expected slice, found object"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			err := tt.call(newClientWithTransport(t, respond(200, successOf(tt.data))))
			decodeErr := onlyError[*msgpush.DecodeError](t, err)
			assert.ErrorContains(t, err, tt.want)
			assertHidden(t, "hunter2", err, decodeErr.Err)
			assertHidden(t, "737373", err, decodeErr.Err)
			assert.ErrorAs(t, err, new(*json.UnmarshalTypeError), "the error of the decoder is wrapped")
		})
	}
}

// The name of a field inside the data may be the key of a map, and so a secret. Which
// fields encoding/json names depends on its version.
func TestDecodeErrorOmitsFieldsOfCallersTypes(t *testing.T) {
	type record struct {
		ID    int                       `json:"id"`
		Inner struct{ Name string }     `json:"inner"`
		Keys  map[string]map[string]int `json:"keys"`
	}
	calls := map[string]func(context.Context, *msgpush.Client) error{
		"map of maps": func(ctx context.Context, c *msgpush.Client) error {
			_, err := msgpush.Call[map[string]map[string]int](ctx, c, get)
			return err
		},
		"map of structs": func(ctx context.Context, c *msgpush.Client) error {
			_, err := msgpush.Call[map[string]record](ctx, c, get)
			return err
		},
		"struct": func(ctx context.Context, c *msgpush.Client) error {
			_, err := msgpush.Call[record](ctx, c, get)
			return err
		},
		"page": func(ctx context.Context, c *msgpush.Client) error {
			_, err := msgpush.Call[msgpush.Page[map[string]int]](ctx, c, get)
			return err
		},
		"type that decodes itself": func(ctx context.Context, c *msgpush.Client) error {
			_, err := msgpush.Call[ownMap](ctx, c, get)
			return err
		},
	}
	tests := []struct{ call, data, want string }{
		{"map of maps", `{"hunter2":"x"}`, "data: expected map, found string"},
		{"map of maps", `{"hunter2":{"hunter2":"x"}}`, "data: expected int, found string"},
		{"map of structs", `{"hunter2":"x"}`, "data: expected struct, found string"},
		{"map of structs", `{"hunter2":{"id":"hunter2"}}`, "data: expected int, found string"},
		{"map of structs", `{"a":{"keys":{"hunter2":{"hunter2":true}}}}`, "data: expected int, found bool"},
		{"struct", `{"id":"hunter2"}`, "data: expected int, found string"},
		{"struct", `{"inner":{"Name":5}}`, "data: expected string, found number"},
		{"struct", `{"keys":{"hunter2":5}}`, "data: expected map, found number"},
		{"page", `{"list":[{"hunter2":"x"}]}`, "data: expected int, found string"},
		{"type that decodes itself", `{"hunter2":"x"}`, "data: expected int, found string"},
	}
	for _, tt := range tests {
		t.Run(tt.call+" "+tt.data, func(t *testing.T) {
			err := calls[tt.call](t.Context(), newClientWithTransport(t, respond(200, successOf(tt.data))))
			decodeErr := onlyError[*msgpush.DecodeError](t, err)
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, decodeErr.Err.Error(), ".", "a field inside the data")
			assertHidden(t, "hunter2", err, decodeErr.Err)
		})
	}
}

func TestErrorTextOmitsErrorOfUnmarshalJSON(t *testing.T) {
	_, err := msgpush.Call[time.Time](t.Context(), newClientWithTransport(t, respond(200, successOf(`"hunter2"`))), get)
	assertHidden(t, "hunter2", err, onlyError[*msgpush.DecodeError](t, err).Err)
	assert.ErrorAs(t, err, new(*time.ParseError))
}

// A decodeCount counts the calls of UnmarshalJSON.
type decodeCount int

func (d *decodeCount) UnmarshalJSON([]byte) error { *d++; return nil }

func TestSuccessIsDecodedOnce(t *testing.T) {
	n, err := msgpush.Call[decodeCount](t.Context(), newClientWithTransport(t, respond(200, successOf(`{}`))), get)
	require.NoError(t, err)
	assert.Equal(t, decodeCount(1), n)
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

func TestWithUnmarshalDecodesEverySuccess(t *testing.T) {
	var got []string
	client := newClientWithTransport(t, succeed, msgpush.WithUnmarshal(func(data []byte, v any) error {
		got = append(got, string(data))
		return json.Unmarshal(data, v)
	}))
	for _, kind := range kindsOfCalls() {
		got = nil
		_, err := kind.do(t.Context(), client)
		require.NoError(t, err)
		assert.Equal(t, []string{success}, got, kind.name)
	}
	for _, c := range calls.All {
		if c.Pages == nil {
			continue
		}
		got = nil
		_, err := collect(c.Pages(t.Context(), client, msgpush.PageRequest{}))
		require.NoError(t, err)
		assert.Equal(t, []string{success}, got, c.Operation)
	}
}

func TestWithUnmarshalSetsResult(t *testing.T) {
	client := newClientWithTransport(t, respond(200, `{}`), msgpush.WithUnmarshal(func(_ []byte, v any) error {
		return json.Unmarshal([]byte(`{"code":200,"data":{"id":7}}`), v)
	}))
	mail, err := client.MailDetail(t.Context(), "1")
	require.NoError(t, err)
	assert.Equal(t, &msgpush.MailChannel{ID: 7}, mail)
}

func TestErrorTypeDoesNotDependOnDecoder(t *testing.T) {
	for _, body := range []string{
		``, `<html>hunter2`, `null`, `[1]`, `{"code":200,"data":{}} x`, `{"code":200,"data":{"id":`, `{"msg":"x"}`, `{"code":"200"}`,
		`{"code":200,"msg":5,"data":{}}`, `{"code":200}`, `{"code":200,"data":null}`, `{"code":200,"data":"x"}`,
		`{"code":200,"data":{"id":"x","list":5}}`, `{"code":500,"msg":"no","data":"x"}`, `{"code":500,"msg":"no","data":{"id":"x"}}`, `{"code":0}`,
	} {
		for _, status := range []int{200, 201, 400, 502} {
			t.Run(fmt.Sprint(status, body), func(t *testing.T) {
				response := respond(status, body)
				standard, other := newClientWithTransport(t, response), newClientWithTransport(t, response, msgpush.WithUnmarshal(otherDecoder))
				for _, c := range calls.All {
					_, want := c.Do(t.Context(), standard)
					_, got := c.Do(t.Context(), other)
					require.IsType(t, want, got, c.Operation)
					if _, ok := errors.AsType[*msgpush.APIError](got); ok {
						assert.EqualError(t, got, want.Error(), c.Operation)
					} else {
						assertHidden(t, "hunter2", got)
					}
				}
			})
		}
	}
}

func TestDecoderErrorIsWrapped(t *testing.T) {
	for _, body := range []string{`{"code":200,"data":{"id":"x"}}`, `<html>`, `{"code":200,`} {
		_, err := newClientWithTransport(t, respond(200, body), msgpush.WithUnmarshal(otherDecoder)).MailDetail(t.Context(), "1")
		onlyError[*msgpush.DecodeError](t, err)
		assert.ErrorIs(t, err, errOther, body)
		assertHidden(t, "hunter2", err)
	}
}

func TestDecoderThatAlwaysFailsAffectsOnlySuccesses(t *testing.T) {
	reject := msgpush.WithUnmarshal(func([]byte, any) error { return errOther })
	_, err := newClientWithTransport(t, succeed, reject).MailDetail(t.Context(), "1")
	onlyError[*msgpush.DecodeError](t, err)
	assert.ErrorIs(t, err, errOther)
	assert.ErrorContains(t, err, "the decoder returned an error")
	assertHidden(t, "hunter2", err)

	_, err = newClientWithTransport(t, respond(200, `{"code":500,"msg":"no"}`), reject).MailDetail(t.Context(), "1")
	onlyError[*msgpush.APIError](t, err) // an error response is decoded with encoding/json
}

func TestDecoderThatSetsNothingCausesDecodeError(t *testing.T) {
	nothing := msgpush.WithUnmarshal(func([]byte, any) error { return nil })
	_, err := newClientWithTransport(t, succeed, nothing).MailDetail(t.Context(), "1")
	onlyError[*msgpush.DecodeError](t, err)
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
		client := newClientWithTransport(t, respond(status, string(body), "Content-Type", contentType))
		for _, kind := range kindsOfCalls() {
			value, err := kind.do(t.Context(), client)
			if err == nil {
				assert.Equal(t, 200, status)
				if value == nil {
					t.Error("neither data nor an error")
				}
				continue
			}
			assertOneLine(t, err.Error())
			types := errorTypes(err)
			require.Len(t, types, 1)
			switch match := types[0].(type) { //nolint:errorlint // errorTypes has unwrapped it
			case *msgpush.APIError:
				assert.Equal(t, status, match.HTTPStatus)
			case *msgpush.DecodeError:
				assert.Equal(t, 200, status)
				assert.Equal(t, string(body), string(match.Body))
			default:
				t.Errorf("%T: %v", err, err)
			}
		}
	})
}

// Data without a member of its type has another schema. Call must not return such data
// as an empty page.
func TestDataWithoutMembersOfItsTypeIsDecodeError(t *testing.T) {
	tests := []struct {
		name, data string
		wrong      string // text of the error of a list; empty if the data is a page
	}{
		{"no member", `{}`, "data: expected members of its type, found none"},
		{"members of another page", `{"records":[{"id":1}],"totalCount":1}`, "data: expected members"},
		{"null record", `{"list":[null]}`, "data.list[0]: expected members of a record, found none"},
		{"null record after another", `{"total":2,"list":[{"id":1},null]}`, "data.list[1]: expected members"},
		{"record without members", `{"list":[{}]}`, "data.list[0]: expected members"},
		{"record with other members", `{"list":[{"ID_":1,"hunter2":"hunter2"}]}`, "data.list[0]: expected members"},

		{"list", `{"list":[]}`, ""},
		{"null list", `{"list":null}`, ""},
		{"only a total of 0", `{"total":0}`, ""},
		{"member in another letter case", `{"LIST":null}`, ""},
		{"member and unknown members", `{"pages":0,"records":[1]}`, ""},
		{"record with a zero member", `{"list":[{"id":0}]}`, ""},
		{"record with a null member", `{"list":[{"id":null}]}`, ""},
		{"record with one more member", `{"list":[{"id":1,"more":{}}]}`, ""},
	}
	decoders := map[string][]msgpush.Option{
		"encoding/json": nil,
		"another decoder": {msgpush.WithUnmarshal(func(data []byte, v any) error {
			d := json.NewDecoder(bytes.NewReader(data))
			d.UseNumber()
			return d.Decode(v)
		})},
	}
	type record struct{ ID int64 }
	for _, tt := range tests {
		for name, opts := range decoders {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				client := newClientWithTransport(t, respond(200, successOf(tt.data)), append(opts, threeAttempts)...)
				lists := map[string]func() error{
					"Page of structs": func() error {
						_, err := msgpush.Call[msgpush.Page[msgpush.ForwardLog]](t.Context(), client, get)
						return err
					},
					"Page of pointers": func() error {
						_, err := msgpush.Call[msgpush.Page[*msgpush.ForwardRule]](t.Context(), client, get)
						return err
					},
				}
				for _, call := range calls.All {
					if call.List != nil {
						lists[call.Operation] = func() error { _, err := call.Do(t.Context(), client); return err }
						lists[call.Operation+", iterated"] = func() error {
							for _, err := range call.Pages(t.Context(), client, msgpush.PageRequest{}) {
								return err
							}
							return nil
						}
					}
				}
				for name, list := range lists {
					err := list()
					if tt.wrong == "" {
						assert.NoError(t, err, name)
					} else if decodeErr := onlyError[*msgpush.DecodeError](t, err); assert.ErrorContains(t, decodeErr, tt.wrong, name) {
						assertAttempts(t, 1, err)
						assertNotIn(t, "hunter2", err.Error())
					}
				}
				_, err := msgpush.Call[record](t.Context(), client, get)
				assert.NoError(t, err, "other types of Call are not checked")
			})
		}
	}
}

func TestDetailWithoutMembersIsDecodeError(t *testing.T) {
	for data, found := range map[string]bool{
		`{}`: false, `{"mail":{"id":1}}`: false, `{"list":[{"id":1}]}`: false,
		`{"id":0}`: true, `{"SMTPPORT":0}`: true, `{"password":null}`: true, `{"mailName":"","x":1}`: true, `{"id":0,"list":[{}]}`: true,
	} {
		mail, err := newClientWithTransport(t, respond(200, successOf(data))).MailDetail(t.Context(), "1")
		if found {
			require.NoError(t, err, data)
			assert.Equal(t, &msgpush.MailChannel{}, mail)
		} else {
			onlyError[*msgpush.DecodeError](t, err)
			assert.ErrorContains(t, err, "data: expected members of its type, found none")
			assert.Nil(t, mail)
		}
	}
}

// Records of any type are rejected only if they cannot be decoded, are null or have none of
// the members of their type.
func TestCallChecksRecordsOfPage(t *testing.T) {
	type inner struct{ A int }
	type record struct {
		inner
		B int `json:"b"`
		C int `json:"-"`
	}
	assertPage := func(t *testing.T, list string, call func(*msgpush.Client) error, ok bool) {
		t.Helper()
		err := call(newClientWithTransport(t, respond(200, successOf(`{"list":`+list+`}`))))
		if ok {
			assert.NoError(t, err, list)
		} else {
			onlyError[*msgpush.DecodeError](t, err)
		}
	}
	pageOf := func(list string, call func(*msgpush.Client) error, ok bool) {
		t.Run(list, func(t *testing.T) { assertPage(t, list, call, ok) })
	}
	structs, ints := callPage[record](t), callPage[int](t)
	pageOf(`[{"a":0}]`, structs, true)
	pageOf(`[{"b":0}]`, structs, true)
	pageOf(`[{"C":0}]`, structs, false)
	pageOf(`[{"-":0}]`, structs, false)
	pageOf(`[{"inner":{}}]`, structs, false)
	pageOf(`[{"b":1},{}]`, structs, false)
	pageOf(`[0,1]`, ints, true)
	pageOf(`[0,null]`, ints, false)
	pageOf(`[""]`, callPage[string](t), true)
	pageOf(`[null]`, callPage[string](t), false)
	pageOf(`[{}]`, callPage[map[string]int](t), true)
	pageOf(`[null]`, callPage[map[string]int](t), false)
	pageOf(`[{},[],0]`, callPage[any](t), true)
	pageOf(`[null]`, callPage[any](t), false)
	pageOf(`[{}]`, callPage[json.RawMessage](t), true)
	pageOf(`[null]`, callPage[json.RawMessage](t), false)
	pageOf(`[{},0]`, callPage[struct{}](t), false) // 0 is no object
	pageOf(`[{},{}]`, callPage[struct{}](t), true)
	pageOf(`["0001-01-01T00:00:00Z"]`, callPage[time.Time](t), true)
	pageOf(`[{},{"b":0}]`, callPage[*record](t), false)
	pageOf(`[{"b":0}]`, callPage[*record](t), true)
}

func callPage[T any](t *testing.T) func(*msgpush.Client) error {
	return func(c *msgpush.Client) error {
		_, err := msgpush.Call[msgpush.Page[T]](t.Context(), c, get)
		return err
	}
}

func TestCallRequiresDataOfPage(t *testing.T) {
	for _, body := range []string{`{"code":200}`, successOf(`null`), successOf(`"text"`), successOf(`{}`)} {
		_, err := msgpush.Call[msgpush.Page[int]](t.Context(), newClientWithTransport(t, respond(200, body)), get)
		onlyError[*msgpush.DecodeError](t, err)
	}
}

// A type of the caller's that embeds a Page may have other members.
func TestCallDoesNotCheckTypeThatEmbedsPage(t *testing.T) {
	for data, want := range map[string]ownPage{
		`{"items":[],"next":"abc"}`: {Next: "abc"},
		`null`:                      {},
	} {
		got, err := msgpush.Call[ownPage](t.Context(), newClientWithTransport(t, respond(200, successOf(data))), get)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

type ownPage struct {
	msgpush.Page[int]
	Next string
}

func (p *ownPage) UnmarshalJSON(data []byte) error {
	var own struct{ Next string }
	err := json.Unmarshal(data, &own)
	p.Next = own.Next
	return err
}

type ownMap map[string]int

func (m *ownMap) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*map[string]int)(m)) }

// A schema that changes on page 3 must not end the iteration as if the list had ended.
func TestIterationFailsAtPageWithoutMembers(t *testing.T) {
	requests := 0
	client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if requests++; requests == 3 {
			return respond(200, successOf(`{}`))(r)
		}
		return respond(200, successOf(fmt.Sprintf(`{"total":10,"list":[{"id":%d},{"id":%d}]}`, 2*requests, 2*requests+1)))(r)
	}))
	got, err := collect(client.MPAll(t.Context(), pagesOf(2)))
	assert.Len(t, got, 4)
	assert.ErrorContains(t, err, "msgpush: page 3: ")
	onlyError[*msgpush.DecodeError](t, err)
}
