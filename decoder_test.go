package msgpush_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

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
	calls := map[string]func(*msgpush.Client) error{
		"Call": func(c *msgpush.Client) error {
			_, err := msgpush.Call[map[string]any](t.Context(), c, msgpush.Request{Method: "GET", Path: "/x"})
			return err
		},
		"iterator": func(c *msgpush.Client) error {
			for _, err := range c.MPAll(t.Context(), msgpush.PageRequest{}) {
				return err
			}
			return nil
		},
	}
	for operation, call := range specifiedCalls {
		calls[operation] = func(c *msgpush.Client) error { _, err := call(c, t.Context()); return err }
	}
	body := listBody(`{"list":[]}`)
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var got []string
			client := newClient(t, respondWithJSON(body), msgpush.WithUnmarshal(func(data []byte, v any) error {
				got = append(got, string(data))
				return json.Unmarshal(data, v)
			}))
			require.NoError(t, call(client))
			assert.Equal(t, []string{body}, got)
		})
	}
}

func TestWithUnmarshalSetsResult(t *testing.T) {
	client := newClient(t, respondWithJSON(`{}`), msgpush.WithUnmarshal(func(_ []byte, v any) error {
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
				service := respondWith(status, "application/json", body)
				standard, other := newClient(t, service), newClient(t, service, msgpush.WithUnmarshal(otherDecoder))
				for operation, call := range specifiedCalls {
					_, want := call(standard, t.Context())
					_, got := call(other, t.Context())
					require.IsType(t, want, got, operation)
					if _, ok := errors.AsType[*msgpush.APIError](got); ok {
						assert.EqualError(t, got, want.Error(), operation)
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
		client := newClient(t, respondWithJSON(body), msgpush.WithUnmarshal(otherDecoder))
		_, err := client.MailDetail(t.Context(), "1")
		require.IsType(t, &msgpush.DecodeError{}, err)
		require.ErrorIs(t, err, errOther, body)
		assertHidden(t, "hunter2", err)
	}
}

func TestDecoderThatAlwaysFailsAffectsOnlySuccesses(t *testing.T) {
	reject := msgpush.WithUnmarshal(func([]byte, any) error { return errOther })

	_, err := newClient(t, respondWithJSON(`{"code":200,"data":{"id":1}}`), reject).MailDetail(t.Context(), "1")
	require.IsType(t, &msgpush.DecodeError{}, err)
	require.ErrorIs(t, err, errOther)
	assert.ErrorContains(t, err, "the decoder returned an error")
	assertHidden(t, "hunter2", err)

	_, err = newClient(t, respondWithJSON(`{"code":500,"msg":"no"}`), reject).MailDetail(t.Context(), "1")
	require.IsType(t, &msgpush.APIError{}, err, "an error response is decoded with encoding/json")
}

func TestDecoderThatSetsNothingCausesDecodeError(t *testing.T) {
	nothing := msgpush.WithUnmarshal(func([]byte, any) error { return nil })
	_, err := newClient(t, respondWithJSON(`{"code":200,"data":{"id":1}}`), nothing).MailDetail(t.Context(), "1")
	assert.IsType(t, &msgpush.DecodeError{}, err)
}

// A decoder such as sonic's may return strings that share memory with its input. If
// the input were reused, a record of one call could show the password of another.
func TestDecoderInputIsNotReused(t *testing.T) {
	var inputs, copies [][]byte
	keep := msgpush.WithUnmarshal(func(data []byte, v any) error {
		inputs, copies = append(inputs, data), append(copies, bytes.Clone(data))
		return json.Unmarshal(data, v)
	})
	bodies := []string{
		listBody(`{"id":1,"password":"of-the-first-call"}`),
		listBody(`{"id":22,"password":"of-the-second-call"}`),
		`{"code":500,"msg":"of an error response"}`,
		`{"code":200,"data":{"password":"cut`,
	}
	n := 0
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		respondWithJSON(bodies[n%len(bodies)])(w, r)
		n++
	}, keep)
	other := newClient(t, respondWithJSON(listBody(`{"password":"of-another-client"}`))) // shares the pool of buffers
	for range 8 * len(bodies) {
		_, _ = client.MailDetail(t.Context(), "1")
		_, err := other.MailDetail(t.Context(), "1")
		require.NoError(t, err)
	}
	require.Len(t, inputs, n)
	for i := range inputs {
		assert.Equal(t, string(copies[i]), string(inputs[i]), "the input of call %d", i)
	}
}

// A call returns nothing that shares memory with a pooled buffer.
func TestResultsShareNoPooledMemory(t *testing.T) {
	status, body := 0, ""
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) { respondWith(status, "text/plain", body)(w, r) })
	call := func(s int, text string) (json.RawMessage, error) {
		status, body = s, text
		return msgpush.Call[json.RawMessage](t.Context(), client, msgpush.Request{Method: "GET", Path: "/x"})
	}
	raw, err := call(200, `{"code":200,"data":{"a":"first"}}`)
	require.NoError(t, err)
	_, rejected := call(200, `{"code":500,"msg":"first","data":{"a":"first"}}`)
	_, cut := call(200, `{"code":200,"data":{"a":"first"}`)
	_, html := call(502, `<html>first, and more of it</html>`)
	texts := []string{rejected.Error(), cut.Error(), html.Error()}
	for range 10 {
		_, err := call(200, `{"code":200,"data":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`)
		require.NoError(t, err)
	}
	assert.Equal(t, `{"a":"first"}`, string(raw))
	assert.Equal(t, []string{rejected.Error(), cut.Error(), html.Error()}, texts)
	var apiErr *msgpush.APIError
	require.ErrorAs(t, rejected, &apiErr)
	assert.Equal(t, `{"a":"first"}`, string(apiErr.Data))
	var decodeErr *msgpush.DecodeError
	require.ErrorAs(t, cut, &decodeErr)
	assert.Equal(t, `{"code":200,"data":{"a":"first"}`, string(decodeErr.Body))
}
