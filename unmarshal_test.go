package msgpush_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// errOther is what otherDecoder says of anything that it does not take.
var errOther = errors.New("other decoder: hunter2")

// otherDecoder takes what encoding/json does, with errors of its own.
func otherDecoder(data []byte, v any) error {
	if json.Unmarshal(data, v) != nil {
		return errOther
	}
	return nil
}

func TestWithUnmarshalDecodesEverySuccess(t *testing.T) {
	calls := map[string]func(*msgpush.Client) error{
		"Call": func(c *msgpush.Client) error {
			_, err := msgpush.Call[map[string]any](ctx, c, msgpush.Request{Method: "GET", Path: "/x"})
			return err
		},
		"walk": func(c *msgpush.Client) error {
			for _, err := range c.MPAll(ctx, msgpush.PageRequest{}) {
				return err
			}
			return nil
		},
	}
	for operation, call := range specified {
		calls[operation] = func(c *msgpush.Client) error { _, err := call(c, ctx); return err }
	}
	body := listBody(`{"list":[]}`)
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var got []string
			client := newClient(t, answeringJSON(body), msgpush.WithUnmarshal(func(data []byte, v any) error {
				got = append(got, string(data))
				return json.Unmarshal(data, v)
			}))
			require.NoError(t, call(client))
			assert.Equal(t, []string{body}, got)
		})
	}
}

func TestWhatWithUnmarshalSetsIsReturned(t *testing.T) {
	client := newClient(t, answeringJSON(`{}`), msgpush.WithUnmarshal(func(_ []byte, v any) error {
		return json.Unmarshal([]byte(`{"code":200,"data":{"id":7}}`), v)
	}))
	mail, err := client.MailDetail(ctx, "1")
	require.NoError(t, err)
	assert.Equal(t, &msgpush.MailChannel{ID: 7}, mail)
}

func TestErrorsAreTheSameWithAnotherDecoder(t *testing.T) {
	for _, body := range []string{
		``, `<html>hunter2`, `null`, `[1]`, `{"code":200,"data":{}} x`, `{"msg":"x"}`, `{"code":"200"}`, `{"code":200,"msg":5,"data":{}}`,
		`{"code":200}`, `{"code":200,"data":null}`, `{"code":200,"data":"x"}`, `{"code":200,"data":{"id":"x","list":5}}`,
		`{"code":500,"msg":"no","data":"x"}`, `{"code":500,"msg":"no","data":{"id":"x"}}`, `{"code":0}`,
	} {
		for _, status := range []int{200, 400, 502} {
			t.Run(fmt.Sprint(status, body), func(t *testing.T) {
				service := answering(status, "application/json", body)
				for operation, call := range specified {
					_, want := call(newClient(t, service), ctx)
					_, got := call(newClient(t, service, msgpush.WithUnmarshal(otherDecoder)), ctx)
					require.Error(t, got, operation)
					assert.EqualError(t, got, want.Error(), operation)
					assert.IsType(t, want, got, operation)
				}
			})
		}
	}
}

func TestAnErrorOfTheDecoderIsWrapped(t *testing.T) {
	client := newClient(t, answeringJSON(`{"code":200,"data":{"id":"x"}}`), msgpush.WithUnmarshal(otherDecoder))
	_, err := client.MailDetail(ctx, "1")
	require.IsType(t, &msgpush.DecodeError{}, err)
	require.ErrorIs(t, err, errOther)
	var typeErr *json.UnmarshalTypeError
	assert.ErrorAs(t, err, &typeErr, "what encoding/json says is wrapped too")
	assertHidden(t, "hunter2", err)
}

func TestWhatTheDecoderAloneRefusesIsNotUnderstood(t *testing.T) {
	refuse := msgpush.WithUnmarshal(func([]byte, any) error { return errOther })
	_, err := newClient(t, answeringJSON(`{"code":200,"data":{"id":1}}`), refuse).MailDetail(ctx, "1")
	require.IsType(t, &msgpush.DecodeError{}, err)
	require.ErrorIs(t, err, errOther)
	assert.ErrorContains(t, err, "WithUnmarshal")
	assertHidden(t, "hunter2", err)

	_, err = newClient(t, answeringJSON(`{"code":500,"msg":"no"}`), refuse).MailDetail(ctx, "1")
	require.IsType(t, &msgpush.APIError{}, err, "a refusal needs no decoder")
}

func TestADecoderThatDecodesNothingIsNotASuccess(t *testing.T) {
	client := newClient(t, answeringJSON(`{"code":200,"data":{"id":1}}`), msgpush.WithUnmarshal(func([]byte, any) error { return nil }))
	_, err := client.MailDetail(ctx, "1")
	assert.IsType(t, &msgpush.DecodeError{}, err)
}

// What a call returns must not lie in a buffer that the next call reads into.
func TestWhatIsReturnedOutlivesTheAnswer(t *testing.T) {
	answer := http.StatusOK
	body := ""
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) { answering(answer, "text/plain", body)(w, r) })
	call := func(status int, text string) (json.RawMessage, error) {
		answer, body = status, text
		return msgpush.Call[json.RawMessage](ctx, client, msgpush.Request{Method: "GET", Path: "/x"})
	}
	raw, err := call(200, `{"code":200,"data":{"a":"first"}}`)
	require.NoError(t, err)
	_, refused := call(200, `{"code":500,"msg":"first","data":{"a":"first"}}`)
	_, broken := call(200, `{"code":200,"data":{"a":"first"}`)
	_, html := call(502, `<html>first, and more of it</html>`)
	texts := []string{refused.Error(), broken.Error(), html.Error()}
	for range 10 {
		_, err := call(200, `{"code":200,"data":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`)
		require.NoError(t, err)
	}
	assert.Equal(t, `{"a":"first"}`, string(raw))
	assert.Equal(t, []string{refused.Error(), broken.Error(), html.Error()}, texts)
	var apiErr *msgpush.APIError
	require.ErrorAs(t, refused, &apiErr)
	assert.Equal(t, `{"a":"first"}`, string(apiErr.Data))
	var decodeErr *msgpush.DecodeError
	require.ErrorAs(t, broken, &decodeErr)
	assert.Equal(t, `{"code":200,"data":{"a":"first"}`, string(decodeErr.Body))
}
