package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func keyFile(t *testing.T, key string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access-key")
	require.NoError(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
	return file
}

func TestRejectedKeyIsReadAgain(t *testing.T) {
	tests := map[string]struct {
		newKey        string // in the file
		rejectedCodes []int
		want          string // in the error
	}{
		"new key in the file": {"second-key", []int{7, msgpushtest.CodeAccessKey}, ""},
		"old key in the file": {"first-key", []int{msgpushtest.CodeAccessKey}, "401"},
		"empty file":          {"", []int{msgpushtest.CodeAccessKey}, "the key is empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := msgpushtest.New(t)
			srv.ReplaceKey("first-key")
			c := config{url: srv.URL, keyFile: keyFile(t, "first-key"), rejectedCodes: tt.rejectedCodes}
			client, err := newClient(c, http.DefaultTransport, newMetrics(), discard())
			require.NoError(t, err)
			_, err = client.ForwardRuleList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)

			srv.ReplaceKey("second-key")
			require.NoError(t, os.WriteFile(c.keyFile, []byte(tt.newKey+"\n"), 0o600))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // the source waits for ten seconds
			defer cancel()
			_, err = client.ForwardRuleList(ctx, msgpush.PageRequest{})
			if tt.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
		})
	}
}

func TestRequestsAreTraced(t *testing.T) {
	srv := msgpushtest.New(t)
	var spans bytes.Buffer
	transport, flush, err := newTransport(true, &spans)
	require.NoError(t, err)
	c := config{url: srv.URL, keyFile: keyFile(t, srv.AccessKey())}
	client, err := newClient(c, transport, newMetrics(), discard())
	require.NoError(t, err)
	_, err = client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
	require.NoError(t, err)
	flush()
	assert.Contains(t, spans.String(), `"Name":"ForwardLogList"`)
	assert.NotContains(t, spans.String(), srv.AccessKey())
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	for name, traced := range map[string]bool{"traced": true, "not traced": false} {
		t.Run(name, func(t *testing.T) {
			srv := msgpushtest.New(t)
			transport, flush, err := newTransport(traced, io.Discard)
			require.NoError(t, err)
			defer flush()
			c := config{url: srv.URL, keyFile: keyFile(t, srv.AccessKey())}
			client, err := newClient(c, transport, newMetrics(), discard())
			require.NoError(t, err)
			isReused := func() (reused bool) {
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
				})
				_, err := client.ForwardRuleList(ctx, msgpush.PageRequest{})
				require.NoError(t, err)
				return reused
			}
			assert.False(t, isReused(), "the first connection")
			assert.True(t, isReused())
			client.CloseIdleConnections() // as after a timeout
			assert.False(t, isReused())
		})
	}
}

func TestPlainHTTPIsAFlag(t *testing.T) {
	args := []string{"-url", "http://push.example.com", "-key-file", keyFile(t, "key")}
	_, err := newClient(parseFlags(args), http.DefaultTransport, newMetrics(), discard())
	assert.ErrorContains(t, err, "clear text")
	_, err = newClient(parseFlags(append(args, "-plain-http")), http.DefaultTransport, newMetrics(), discard())
	assert.NoError(t, err)
}
