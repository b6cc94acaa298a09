//go:build linux

package integration

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// startNginx starts nginx in front of the fake server, with two workers.
func startNginx(s *setup, sc scenario) {
	s.gateway = newGateway(s.T, "nginx", freeAddr())
	config := strings.NewReplacer("DIR", s.gateway.dir, "LISTEN", s.gateway.addr, "UPSTREAM", s.upstream).Replace(`
		daemon off; worker_processes 2; pid DIR/pid; error_log DIR/error.log; USER
		events { worker_connections 4096; }
		http {
			access_log off;
			client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/fastcgi;
			uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
			HTTP
			upstream service { server UPSTREAM; keepalive 64; }
			server {
				listen LISTEN TLS;
				location / { proxy_pass http://service; }
				SERVER
			}
		}`)
	user, tls := "", ""
	if os.Geteuid() == 0 {
		user = "user root;" // another user has no access to the directory
	}
	if sc.tls {
		tls = fmt.Sprintf("ssl http2; ssl_certificate %s; ssl_certificate_key %[1]s", cmp.Or(sc.certificate, certificate))
	}
	config = strings.NewReplacer("USER", user, "TLS", tls, "HTTP", sc.http, "SERVER", sc.config).Replace(config)
	s.gateway.args = append(s.gateway.args, "-e", s.gateway.file("error.log"), "-p", s.gateway.dir, "-c",
		s.gateway.configure(config))
	s.url = "http://" + s.gateway.addr
	if sc.tls {
		s.url = "https://" + s.gateway.addr
	}
	s.gateway.start()
}

func TestNginx(t *testing.T) {
	runInParallel(t, startNginx, []scenario{
		{name: "defaults"},
		{name: "TLS and HTTP/2", tls: true},
		{name: "gzip", config: "gzip on; gzip_types application/json; gzip_min_length 1;", before: requireGzip},
		{name: "buffering off", config: "proxy_buffering off;", load: load{calls: 600, pageSize: 500}},
		{
			name:   "buffering to disk",
			config: "proxy_buffer_size 4k; proxy_buffers 2 4k; proxy_busy_buffers_size 4k;",
			load:   load{calls: 600, pageSize: 500},
		},
		{
			name: "connections closed after 3 requests", config: "keepalive_requests 3;",
			closes: true,
		},
		{
			name: "connections closed when reused", config: "keepalive_timeout 20ms;",
			load: load{
				calls: 1600,
				pause: func() time.Duration { return time.Duration(15+rand.IntN(10)) * time.Millisecond },
			},
			closes: true,
		},
		{
			name: "truncated upstream responses without a length", // nginx passes them on as complete
			load: load{calls: 1000}, before: func(s *setup) { cutUpstreamResponses(s, 100) },
		},
		{
			name: "upstream slower than proxy_read_timeout", config: "proxy_read_timeout 200ms;", retry: patient,
			load: load{calls: 1000}, before: func(s *setup) {
				s.server.Inject(slices.Repeat([]msgpushtest.Fault{msgpushtest.Delay(time.Minute)}, 20)...)
			},
		},
		{name: "5 reloads", during: reload, retry: patient, closes: true},
		{name: "5 reloads, HTTP/2", tls: true, during: reload, retry: patient, closes: true},
		{name: "5 restarts", during: restart, retry: patient, closes: true},
		{name: "5 restarts, HTTP/2", tls: true, during: restart, retry: patient, closes: true},
		{
			name: "redirects",
			config: "location = /api/open/mail/detail { return 302 https://elsewhere.example.com/; } " +
				"location = /api/open/forwardLog/list { return 307 https://elsewhere.example.com/; }",
			expect: func(s *setup, r report) {
				assert.Equal(s, s.load.calls, r.api)
				assert.Contains(s, r.firstErrors[0], "redirect to https://elsewhere.example.com/, not followed; 1 attempt; ")
				assert.Empty(s, s.server.Requests())
			},
		},
		{
			name: "request bodies too large", config: "client_max_body_size 10;",
			load: load{calls: 1000}, closes: true, // nginx closes the connection
			expect: func(s *setup, r report) {
				assert.Equal(s, 500, r.api)
				assert.Equal(s, 500, r.succeeded)
				assert.Contains(s, r.firstErrors[0], "HTTP 413 Request Entity Too Large")
				assert.Contains(s, r.firstErrors[0], "1 attempt; POST ")
			},
		},
	})
}

// The client retries a request that nginx rejects because of a rate limit, even if the
// response has no Retry-After header.
func TestNginxRateLimit(t *testing.T) {
	var scenarios []scenario
	for _, status := range []int{429, 503} {
		for _, header := range []string{"", "add_header Retry-After 1 always;"} {
			name := fmt.Sprintf("status %d without Retry-After", status)
			if header != "" {
				name = fmt.Sprintf("status %d with Retry-After", status)
			}
			scenarios = append(scenarios, scenario{
				name: name, http: "limit_req_zone $server_port zone=all:1m rate=200r/s;",
				config: fmt.Sprintf(
					"limit_req zone=all burst=10 nodelay; limit_req_status %d; "+
						"error_page %[1]d @limited; location @limited { %s return %[1]d; }",
					status,
					header,
				),
				load: load{calls: 300, callers: 32},
			})
		}
	}
	runInParallel(t, startNginx, scenarios)
}

func reload(s *setup) { s.repeat(5, func(int) { s.gateway.signal(syscall.SIGHUP) }) }

func restart(s *setup) { s.repeat(5, func(int) { s.gateway.restart() }) }

// requireGzip checks that the gateway compresses responses.
func requireGzip(s *setup) {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+"/api/open/mail/detail?mailId=100", nil)
	require.NoError(s, err)
	req.Header.Set("access-key", s.server.AccessKey())
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := trusting(s.T, certificate).RoundTrip(req)
	require.NoError(s, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(s, err)
	require.Equal(s, "gzip", resp.Header.Get("Content-Encoding"))
}

// cutUpstreamResponses makes the fake server cut n responses, one in five, as a
// crashing server does: they have no Content-Length, and the connection closes early.
func cutUpstreamResponses(s *setup, n int) {
	body, err := json.Marshal(msgpush.Envelope[msgpush.ForwardLog]{Code: 200, Msg: "success", Data: newLog(7)})
	require.NoError(s, err)
	for i := range n {
		s.server.Inject(msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n%s", body[:i*len(body)/n])
		}))
		s.server.Inject(make([]msgpushtest.Fault, 4)...) // zero faults: usual responses
	}
}

// No call fails where nginx ends an HTTP/2 connection with GOAWAY after every 100 requests.
func TestNginxGoaway(t *testing.T) {
	s := newSetup(t)
	startNginx(s, scenario{tls: true, config: "keepalive_requests 100;"})
	s.load = load{}.withDefaults()

	withOneAttempt := s.run(newClient(t, s.url, s.server, oneAttempt), nil)
	t.Logf("one attempt: %v", withOneAttempt)
	s.check(withOneAttempt)
	assert.LessOrEqual(t, withOneAttempt.failed(), 5, withOneAttempt.firstErrors)
	s.succeed(newClient(t, s.url, s.server), s.load, nil)
}

// nameWorkers makes nginx name the worker that sent a response; see suspendWorkerOf.
const nameWorkers = "add_header Worker $pid always; location = /worker { return 404; }"

// suspendWorkerOf suspends a worker that has a connection of a client, until the gateway
// is killed at the end of the test.
func (s *setup) suspendWorkerOf(client *msgpush.Client) {
	s.Helper()
	_, err := msgpush.Call[struct{}](s.Context(), client, msgpush.Request{Method: "GET", Path: "/worker"})
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	require.True(s, ok, "%v", err)
	worker, err := strconv.Atoi(apiErr.Header.Get("Worker"))
	require.NoError(s, err)
	require.NoError(s, syscall.Kill(worker, syscall.SIGSTOP))
}

// A suspended worker keeps its connections open and sends nothing. The default transport
// detects it with pings and uses another connection. So does a transport of NewTransport
// with other settings, such as a private certificate authority.
func TestNginxSuspendedWorker(t *testing.T) {
	checkLeaks(t)
	for name, own := range map[string]bool{"default transport": false, "private certificate authority": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSetup(t)
			sc := scenario{tls: true, config: nameWorkers}
			var opts []msgpush.Option
			if own {
				sc.certificate = filepath.Join(t.TempDir(), "private.pem")
				require.NoError(t, writeCertificate(sc.certificate))
				opts = append(opts, msgpush.WithHTTPClient(&http.Client{Transport: trusting(t, sc.certificate)}))
			}
			startNginx(s, sc)
			client := newClient(t, s.url, s.server, opts...)
			s.suspendWorkerOf(client)

			r := s.succeed(client, load{calls: 32}, nil)
			assert.NotZero(t, r.dials)

			// Later calls do not wait: only the logged times show it.
			s.succeed(client, load{calls: 500}, nil)
		})
	}
}

// trusting returns a NewTransport that trusts one certificate.
func trusting(t *testing.T, certificate string) *http.Transport {
	t.Helper()
	pem, err := os.ReadFile(certificate)
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(pem))
	transport := msgpush.NewTransport()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// HTTP/1 has no pings: each connection to the suspended worker costs one call the timeout
// of an attempt. The retry uses another connection.
func TestNginxSuspendedWorkerWithHTTP1(t *testing.T) {
	s := newSetup(t)
	startNginx(s, scenario{config: nameWorkers})
	client := newClient(t, s.url, s.server, msgpush.WithAttemptTimeout(time.Second), msgpush.WithRetry(patient))
	s.succeed(client, load{calls: 320}, nil)
	s.suspendWorkerOf(client)

	r := s.succeed(client, load{calls: 320}, nil)
	assert.GreaterOrEqual(t, r.slowest, time.Second, "a call met the suspended worker")
}

// The key is replaced while calls run. Each call that is rejected gets the new one.
func TestNginxKeyRotation(t *testing.T) {
	for name, tls := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			startNginx(s, scenario{tls: tls})
			client, err := msgpush.NewClient(s.url, "", msgpush.WithLogger(logger()), s.rotatingKey(),
				msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey))
			require.NoError(t, err)
			const rotations = 5 // few, so that no call meets two
			s.succeed(client, load{}, func(s *setup) { s.repeat(rotations, s.rotate) })
			assert.LessOrEqual(t, s.fetches.Load(), int64(rotations+1), "keys fetched")
		})
	}
}

// The certificate of nginx is replaced while calls run. No call fails, and nginx uses the new
// one.
func TestNginxCertificateRotation(t *testing.T) {
	const rotations = 5
	s := newSetup(t)
	dir := t.TempDir()
	var files []string
	var all []byte
	for i := range rotations + 1 {
		file := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, writeCertificate(file))
		files = append(files, file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all = append(all, text...)
	}
	trusted, current := filepath.Join(dir, "trusted"), filepath.Join(dir, "current")
	require.NoError(t, os.WriteFile(trusted, all, 0o600))
	require.NoError(t, os.Link(files[0], current))
	startNginx(s, scenario{tls: true, certificate: current})
	transport := trusting(t, trusted)
	client := newClient(t, s.url, s.server, msgpush.WithHTTPClient(&http.Client{Transport: transport}),
		msgpush.WithRetry(patient))
	s.succeed(client, load{calls: 2000}, func(s *setup) {
		s.repeat(rotations, func(i int) {
			require.NoError(s, os.Rename(files[i+1], current))
			s.gateway.signal(syscall.SIGHUP)
		})
	})
	want, err := tls.LoadX509KeyPair(current, current)
	require.NoError(t, err)
	eventually(t, "nginx uses the last certificate", func() bool {
		conn, err := tls.Dial("tcp", s.gateway.addr, transport.TLSClientConfig)
		if err != nil {
			return false
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Equal(want.Leaf)
	})
}

// rotatingKey returns an option with a key source that fetches the key of the server.
func (s *setup) rotatingKey() msgpush.Option {
	source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		s.fetches.Add(1)
		return s.server.AccessKey(), time.Time{}, nil
	}, msgpush.AccessKeyCacheOptions{MinInterval: -1}) // the key is replaced more than once a second
	return msgpush.WithAccessKeySource(source)
}

// rotate replaces the key of the server.
func (s *setup) rotate(i int) {
	key := fmt.Sprintf("rotated-key-%d-%d", i, rand.Uint64())
	shown.addKey(key)
	s.server.ReplaceKey(key)
}
