// Package decoders checks that, with sonic or goccy/go-json as the decoder of WithUnmarshal, a client
// returns the same as without.
package decoders

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/bytedance/sonic"
	goccy "github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

var decoders = map[string]func([]byte, any) error{
	"sonic":         sonic.ConfigStd.Unmarshal,
	"goccy/go-json": goccy.Unmarshal,
}

// A canned response is returned for every request.
type canned struct {
	status int
	body   []byte
}

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: c.status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(c.body)),
	}, nil
}

// newClient returns a client that makes one attempt.
func newClient(t *testing.T, response canned, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient("https://service.example.com", "key", append(opts,
		msgpush.WithHTTPClient(&http.Client{Transport: response}),
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))...)
	require.NoError(t, err)
	return client
}

// calls decode a response with each method, and with Call into different types.
var calls = map[string]func(*msgpush.Client) (any, error){
	"MailDetail": func(c *msgpush.Client) (any, error) { return c.MailDetail(ctx, "5") },
	"MPList":     func(c *msgpush.Client) (any, error) { return c.MPList(ctx, msgpush.PageRequest{}) },
	"ForwardRuleList": func(c *msgpush.Client) (any, error) {
		return c.ForwardRuleList(ctx, msgpush.PageRequest{})
	},
	"ForwardLogList": func(c *msgpush.Client) (any, error) {
		return c.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
	},
	"Call[Page]": func(c *msgpush.Client) (any, error) {
		return msgpush.Call[msgpush.Page[msgpush.ForwardLog]](ctx, c, unknown)
	},
	"Call[*MailChannel]": func(c *msgpush.Client) (any, error) {
		return msgpush.Call[*msgpush.MailChannel](ctx, c, unknown)
	},
	"Call[map]":        func(c *msgpush.Client) (any, error) { return msgpush.Call[map[string]any](ctx, c, unknown) },
	"Call[string]":     func(c *msgpush.Client) (any, error) { return msgpush.Call[string](ctx, c, unknown) },
	"Call[RawMessage]": func(c *msgpush.Client) (any, error) { return msgpush.Call[json.RawMessage](ctx, c, unknown) },
	"Call[struct{}]":   func(c *msgpush.Client) (any, error) { return msgpush.Call[struct{}](ctx, c, unknown) },
}

var (
	ctx     = context.Background()
	unknown = msgpush.Request{Method: http.MethodPost, Path: "/x"}
)

func bodies(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	files, err := filepath.Glob("../../testdata/responses/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		all[filepath.Base(file)] = body
	}
	for _, body := range []string{
		``,
		` `,
		`null`,
		`[]`,
		`"text"`,
		`7`,
		`{}`,
		`<html>`,
		`{"code":200`,
		`{"code":200}`,
		`{"code":200,"data":null}`,
		`{"code":200,"data":"text"}`,
		`{"code":200,"data":["text"]}`,
		`{"code":200,"data":{}}`,
		`{"code":200,"data":{}} x`,
		`{"code":200,"data":{}}}`,
		`{"code":"200","data":{}}`,
		`{"code":200.5,"data":{}}`,
		`{"code":null,"data":{}}`,
		`{"code":200,"msg":5,"data":{}}`,
		`{"code":200,"data":{"id":"5"}}`,
		`{"code":200,"data":{"id":5.5}}`,
		`{"code":200,"data":{"id":99999999999999999999}}`,
		`{"code":200,"data":{"mailName":5,"password":null}}`,
		`{"code":200,"data":{"list":{}}}`,
		`{"code":200,"data":{"list":[{"id":1},{"id":true}]}}`,
		`{"code":200,"data":{"list":null}}`,
		`{"code":200,"data":{"mailName":"\ud800 \u00e9"}}`,
		`{"code":200,"data":{"mailName":"` + "\n" + `"}}`,
		`{"code":500,"msg":"no","data":{"id":"5"}}`,
		`{"code":500,"data":"text"}`,
		`{"code":0}`,
		`{"CODE":200,"Data":{"ID":7}}`,
		`{"code":200,"code":500,"data":{}}`,
		`{"code":200,"data":{"id":1},"data":{"mailName":"x"}}`,
	} {
		all[body] = []byte(body)
	}
	return all
}

func TestDecodersReturnTheSame(t *testing.T) {
	for decoder, unmarshal := range decoders {
		for name, body := range bodies(t) {
			for _, status := range []int{200, 502} {
				for call, do := range calls {
					t.Run(fmt.Sprint(decoder, "/", call, "/", status, "/", name), func(t *testing.T) {
						response := canned{status, body}
						want, wantErr := do(newClient(t, response))
						got, gotErr := do(newClient(t, response, msgpush.WithUnmarshal(unmarshal)))
						assert.Equal(t, want, got)
						if wantErr == nil {
							assert.NoError(t, gotErr)
							return
						}
						require.Error(t, gotErr)
						assert.IsType(t, wantErr, gotErr)
					})
				}
			}
		}
	}
}

func TestResultsOutliveTheResponse(t *testing.T) {
	for decoder, unmarshal := range decoders {
		t.Run(decoder, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.SetRecords(msgpushtest.SampleRecords())
			client := server.Client(msgpush.WithUnmarshal(unmarshal))
			fetch := func(number int) *msgpush.Page[msgpush.ForwardLog] {
				request := msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: number, PageSize: 20}}
				p, err := client.ForwardLogList(ctx, request)
				require.NoError(t, err)
				return p
			}
			want := server.Records().ForwardLogs
			first := fetch(1)
			for range 10 { // the next responses would overwrite a reused list or buffer
				assert.Equal(t, want[20:40], fetch(2).List)
				_, err := client.MailDetail(ctx, msgpushtest.SampleMailID) // its text differs from the pages
				require.NoError(t, err)
			}
			assert.Equal(t, want[:20], first.List)
		})
	}
}
