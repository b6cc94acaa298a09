package msgpushtest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/errno"
	"example.com/msgpush/msgpushtest"
)

// dial connects to a server and sends bytes. halfClose then closes the client's side of the
// connection, as "nc -N" does.
func dial(t *testing.T, server *msgpushtest.Server, sent string, halfClose bool) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, sent)
	require.NoError(t, err)
	if halfClose {
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	}
	return conn
}

// rawRequest returns the text of an HTTP/1.1 request: a POST of the official-account channel list.
// bodyHeader is the header that delimits the body, such as Content-Length.
func rawRequest(server *msgpushtest.Server, bodyHeader, body string) string {
	return "POST /api/open/mp/list HTTP/1.1\r\nHost: msgpush.test\r\naccess-key: " + server.AccessKey() +
		"\r\nContent-Type: application/json\r\n" + bodyHeader + "\r\n\r\n" + body
}

// readBody returns the body of the next response on a connection.
func readBody(conn net.Conn) (string, error) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func readEnvelope(t *testing.T, conn net.Conn) msgpush.Envelope[json.RawMessage] {
	t.Helper()
	body, err := readBody(conn)
	require.NoError(t, err)
	var envelope msgpush.Envelope[json.RawMessage]
	require.NoError(t, json.Unmarshal([]byte(body), &envelope), body)
	return envelope
}

func TestClientThatClosesItsSideGetsTheResponse(t *testing.T) {
	for name, setUp := range map[string]func(*msgpushtest.Server){
		"usual response": func(*msgpushtest.Server) {},
		"latency":        func(s *msgpushtest.Server) { s.SetLatency(time.Millisecond) },
		"delay":          func(s *msgpushtest.Server) { s.Inject(msgpushtest.Delay(time.Millisecond).Always()) },
		"OnRequest": func(s *msgpushtest.Server) {
			s.OnRequest(func(msgpushtest.Request) { time.Sleep(time.Millisecond) })
		},
		"fault": func(s *msgpushtest.Server) {
			s.Inject(msgpushtest.ErrorResponse(200, "success", []int{}).Always())
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			setUp(server)
			for range 20 {
				var conns []net.Conn
				for range 3 { // with OnRequest, one is handled while the others wait
					conns = append(conns, dial(t, server, rawRequest(server, "Content-Length: 2", "{}"), true))
				}
				for _, conn := range conns {
					assert.Equal(t, 200, readEnvelope(t, conn).Code)
				}
			}
		})
	}
}

func TestEndlessResponseGoesOnAfterClientClosesItsSide(t *testing.T) {
	server := msgpushtest.New(t)
	server.Inject(msgpushtest.Endless())
	_, err := io.CopyN(io.Discard, dial(t, server, rawRequest(server, "Content-Length: 2", "{}"), true), 1<<20)
	require.NoError(t, err)
}

func TestOptionsOfTheServerAreAnError(t *testing.T) {
	server := msgpushtest.New(t)
	request := "OPTIONS * HTTP/1.1\r\nHost: msgpush.test\r\naccess-key: " + server.AccessKey() + "\r\n\r\n"
	assert.Equal(t, msgpushtest.CodeNotFound, readEnvelope(t, dial(t, server, request, false)).Code)
}

func TestBrokenBodyIsRejected(t *testing.T) {
	const chunked, valid = "Transfer-Encoding: chunked", `{"current":1}`
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(valid), valid)
	tests := []struct{ name, header, body string }{
		{"shorter than its Content-Length, valid JSON", "Content-Length: 99", valid},
		{"shorter than its Content-Length, one byte", "Content-Length: 13", "{"},
		{"no body", "Content-Length: 2", ""},
		{"chunks break off after valid JSON", chunked, chunk},
		{"chunks break off in a chunk", chunked, "ff\r\n" + valid},
		{"chunks break off after the size", chunked, chunk + "5\r\n"},
		{"chunks break off before the last line", chunked, chunk + "0\r\n"},
		{"invalid chunk size", chunked, chunk + "what?\r\n0\r\n\r\n"},
		{"invalid trailer", chunked, chunk + "0\r\nno colon\r\n\r\n"},
		{"invalid trailer before a valid one", chunked, chunk + "0\r\nno colon\r\nname: value\r\n\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := msgpushtest.New(t)
			conn := dial(t, server, rawRequest(server, tt.header, tt.body), true)
			envelope := readEnvelope(t, conn)
			assert.Equal(t, msgpushtest.CodeBadRequest, envelope.Code)
			assert.Contains(t, envelope.Msg, "the body cannot be read: ")
			assert.Nil(t, envelope.Data)
			assert.Len(t, server.Requests(), 1)
		})
	}
	t.Run("of a GET", func(t *testing.T) {
		server := msgpushtest.New(t)
		request := strings.NewReplacer("POST", "GET", "/mp/list", "/mail/detail?mailId=1").
			Replace(rawRequest(server, chunked, chunk))
		assert.Equal(t, msgpushtest.CodeBadRequest, readEnvelope(t, dial(t, server, request, true)).Code)
	})
}

func TestHandlerReadsBodyAsSent(t *testing.T) {
	tests := map[string]struct {
		header, body string
		check        func(*testing.T, string, error)
	}{
		"empty": {"Content-Length: 0", "", func(t *testing.T, got string, err error) {
			assert.NoError(t, err)
			assert.Empty(t, got)
		}},
		"larger than the limit of the usual response": {"Content-Length: 3145728",
			strings.Repeat("x", 3<<20),
			func(t *testing.T, got string, err error) {
				assert.NoError(t, err)
				assert.Len(t, got, 3<<20)
			}},
		"broken": {"Content-Length: 9", "{}", func(t *testing.T, got string, err error) {
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.Equal(t, "{}", got)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.Inject(msgpushtest.Respond(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				tt.check(t, string(body), err)
				_, _ = io.WriteString(w, `{"code":200,"data":{}}`)
			}))
			conn := dial(t, server, rawRequest(server, tt.header, tt.body), true)
			assert.Equal(t, 200, readEnvelope(t, conn).Code)
		})
	}
}

func TestFaultsResetConnectionsWithTLS(t *testing.T) {
	for name, fault := range map[string]msgpushtest.Fault{
		"reset":             msgpushtest.Reset(),
		"reset in the body": msgpushtest.ResetInBody(),
	} {
		t.Run(name, func(t *testing.T) {
			for _, http2 := range []bool{false, true} {
				server := msgpushtest.New(t)
				server.Inject(fault)
				https := httptest.NewUnstartedServer(server)
				https.EnableHTTP2 = http2
				https.StartTLS()
				defer https.Close()
				client, err := msgpush.NewClient(https.URL, server.AccessKey(),
					msgpush.WithHTTPClient(https.Client()), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
				require.NoError(t, err)
				if err := calls[msgpushtest.MPList](client); http2 {
					assert.ErrorContains(t, err, "INTERNAL_ERROR")
				} else {
					assert.ErrorIs(t, err, errno.ConnReset)
				}
			}
		})
	}
}

// Two requests are sent together. A fault that ends the connection ends it for the second request,
// too.
func TestFaultsThatEndTheConnectionDiscardTheNextRequest(t *testing.T) {
	tests := map[string]struct {
		fault msgpushtest.Fault
		check func(t *testing.T, body string, err error)
	}{
		"reset": {
			msgpushtest.Reset(),
			func(t *testing.T, _ string, err error) { assert.ErrorIs(t, err, errno.ConnReset) },
		},
		"reset in the body": {
			msgpushtest.ResetInBody(),
			func(t *testing.T, _ string, err error) { assert.ErrorIs(t, err, errno.ConnReset) },
		},
		"truncated": {msgpushtest.Truncate(), func(t *testing.T, body string, err error) {
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.Contains(t, body, `{"code":200,`)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			server.Inject(tt.fault)
			request := rawRequest(server, "Content-Length: 2", "{}")
			body, err := readBody(dial(t, server, request+request, false))
			tt.check(t, body, err)
			assert.Len(t, server.Requests(), 1)
			assert.NoError(t, calls[msgpushtest.MPList](server.Client()))
		})
	}
}
