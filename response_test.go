package msgpush_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A decoder such as sonic's may return strings that share memory with its input. If
// the input were reused, a record of one call could show the password of another.
func TestDecoderInputIsNotReused(t *testing.T) {
	var inputs, copies [][]byte
	keep := msgpush.WithUnmarshal(func(data []byte, v any) error {
		inputs, copies = append(inputs, data), append(copies, bytes.Clone(data))
		return json.Unmarshal(data, v)
	})
	bodies := []string{
		successOf(`{"id":1,"password":"of-the-first-call"}`),
		successOf(`{"id":22,"password":"of-the-second-call"}`),
		`{"code":500,"msg":"of an error response"}`,
		`{"code":200,"data":{"password":"cut`,
	}
	n := 0
	client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
		n++
		return respond(200, bodies[n%len(bodies)])(r)
	}), keep)
	other := newClientWithTransport(t, respond(200, successOf(`{"password":"of-another-client"}`))) // shares the pool of buffers
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
	client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) { return respond(status, body)(r) }))
	call := func(s int, text string) (json.RawMessage, error) {
		status, body = s, text
		return msgpush.Call[json.RawMessage](t.Context(), client, get)
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
	assert.Equal(t, `{"a":"first"}`, string(onlyError[*msgpush.APIError](t, rejected).Data))
	assert.Equal(t, `{"code":200,"data":{"a":"first"}`, string(onlyError[*msgpush.DecodeError](t, cut).Body))
}

// The limit applies to the decompressed body.
func TestDefaultBodyLimitIs4MiB(t *testing.T) {
	const envelope = `{"code":200,"data":""}`
	require.Equal(t, 4<<20, msgpush.DefaultMaxResponseBytes)
	for name, compress := range map[string]bool{"plain": false, "gzip": true} {
		t.Run(name, func(t *testing.T) {
			length := 0
			client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				body := `{"code":200,"data":"` + strings.Repeat("x", length-len(envelope)) + `"}`
				if !compress {
					_, _ = io.WriteString(w, body)
					return
				}
				assert.Equal(t, "gzip", r.Header.Get("Accept-Encoding"))
				w.Header().Set("Content-Encoding", "gzip")
				z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
				assert.NoError(t, err)
				_, _ = io.WriteString(z, body)
				_ = z.Close() // fails if the client has stopped reading
			})
			for length = range map[int]bool{4<<20 - 1: true, 4 << 20: true} {
				data, err := msgpush.Call[string](t.Context(), client, get)
				require.NoError(t, err, length)
				assert.Len(t, data, length-len(envelope))
			}
			for length = range map[int]bool{4<<20 + 1: true, 16 << 20: true} {
				_, err := msgpush.Call[string](t.Context(), client, get)
				assertFailure(t, err, wantFailure{kind: "RequestError", text: fmt.Sprintf("the limit is %d bytes", msgpush.DefaultMaxResponseBytes)}, 1)
			}
		})
	}
}

func TestWithMaxResponseBytes(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"known length": serveJSON(success),
		"chunked": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, success)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for limit, fits := range map[int64]bool{1: false, int64(len(success)) - 1: false, int64(len(success)): true, 1<<63 - 1: true} {
				_, err := newClient(t, h, msgpush.WithMaxResponseBytes(limit)).MPList(t.Context(), msgpush.PageRequest{})
				if fits {
					assert.NoError(t, err)
				} else {
					assertFailure(t, err, wantFailure{kind: "RequestError", text: fmt.Sprintf("the limit is %d bytes", limit)}, 1)
				}
			}
		})
	}
}

func TestReadsAtMostOneByteMoreThanTheLimit(t *testing.T) {
	read := 0
	client := newClientWithTransport(t, respondFrom(200, func(*http.Request) io.Reader {
		return readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil })
	}), msgpush.WithMaxResponseBytes(1000))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.Error(t, err)
	assert.LessOrEqual(t, read, 1001)
}

// A closeCounter is a body that counts the calls of Close.
type closeCounter struct {
	io.Reader
	closed *int
}

func (c closeCounter) Close() error {
	*c.closed++
	return nil
}

func TestBodiesAreClosed(t *testing.T) {
	for name, step := range map[string]roundTripFunc{
		"success":                    succeed,
		"transient status":           respond(503, "busy"),
		"permanent status":           respond(404, "no"),
		"redirect":                   respond(302, "", "Location", "/x"),
		"redirect to an invalid URL": respond(302, "", "Location", "::"),
		"protocol switched":          respondFrom(101, endlessBody),
		"truncated body":             respondFrom(200, cutBody("{")),
		"endless body":               respondFrom(200, endlessBody),
		"HTML":                       respond(200, "<html>"),
	} {
		t.Run(name, func(t *testing.T) {
			opened, closed := 0, 0
			client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
				opened++
				resp, err := step(r)
				resp.Body = closeCounter{resp.Body, &closed}
				return resp, err
			}), threeAttempts, msgpush.WithMaxResponseBytes(1000))
			for _, kind := range kindsOfCalls() {
				_, _ = kind.do(t.Context(), client)
			}
			assert.NotZero(t, opened)
			assert.GreaterOrEqual(t, closed, opened)
		})
	}
}

func TestDoesNotModifyResponseOfTransport(t *testing.T) {
	for name, shared := range map[string]*http.Response{
		"no body":   {StatusCode: 204, Header: http.Header{"X-Key": {testKey}}, Body: http.NoBody},
		"redirect":  {StatusCode: 302, Header: http.Header{"X-Key": {testKey}, "Location": {"/elsewhere"}}, Body: http.NoBody},
		"no header": {StatusCode: 302, Body: http.NoBody},
	} {
		t.Run(name, func(t *testing.T) {
			before := *shared
			before.Header = shared.Header.Clone()
			client := newClientWithTransport(t, roundTripFunc(func(*http.Request) (*http.Response, error) { return shared, nil }))
			for range 2 {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assertFailure(t, err, wantFailure{kind: "APIError", text: fmt.Sprint("HTTP ", shared.StatusCode)}, 1)
			}
			assert.Equal(t, before.Header, shared.Header)
			assert.Equal(t, before.Body, shared.Body)
		})
	}
}

// If a body violates the contract of io.Reader and writes to its buffer after Read
// has returned, this must not change the response of another call.
func TestLateWriteOfBodyReaderDoesNotReachAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(*http.Request) io.Reader {
			return readerFunc(func(p []byte) (int, error) {
				go func() {
					time.Sleep(time.Second)
					copy(p, strings.Repeat("x", 100))
				}()
				return 0, errors.New("connection lost")
			})
		}
		client := newClientWithTransport(t, newScript(
			respond(200, `{"code":200,"data":{"id":1},"more":"`+strings.Repeat(" ", 4096)+`"}`), // leaves a buffer in the pool
			respondFrom(200, late),
			respondFrom(200, func(*http.Request) io.Reader {
				return io.MultiReader(strings.NewReader(`{"code":200,"data":{"id":7`), readerFunc(func([]byte) (int, error) {
					time.Sleep(2 * time.Second)
					return 0, io.EOF
				}), strings.NewReader(`}}`))
			}),
		))
		_, err := client.MailDetail(t.Context(), "1")
		require.NoError(t, err)
		_, err = client.MailDetail(t.Context(), "1")
		require.ErrorContains(t, err, "connection lost")
		mail, err := client.MailDetail(t.Context(), "7")
		require.NoError(t, err)
		assert.EqualValues(t, 7, mail.ID)
	})
}
