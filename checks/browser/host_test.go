//go:build !js

package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

// A result is the output of a test program, and its exit status.
type result struct {
	Output string
	Status int
}

// runInNode runs a test program. net/http uses fetch because the name of the program, its
// first argument, does not begin with node.
func runInNode(t *testing.T, program string, env map[string]string, args ...string) result {
	t.Helper()
	node := find(t, "node")
	cmd := exec.CommandContext(t.Context(), node)
	cmd.Args = append(
		[]string{"program", "--stack-size=8192", filepath.Join(wasmDir(t), "wasm_exec_node.js"), program},
		args...)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, _ := cmd.CombinedOutput()
	return result{string(out), cmd.ProcessState.ExitCode()}
}

// page runs a test program and posts its result.
const page = `<!DOCTYPE html>
<script src="wasm_exec.js"></script>
<script>
const decoder = new TextDecoder();
let Output = "", Status = -1;
fs.writeSync = (fd, bytes) => { Output += decoder.decode(bytes); return bytes.length; };
for (const [name, call] of Object.entries(fs)) {
  if (typeof call === "function" && name !== "writeSync") { // call back later, as node does
    fs[name] = (...args) => {
      const callback = args.pop();
      call.call(fs, ...args, (...results) => queueMicrotask(() => callback(...results)));
    };
  }
}
const go = new Go();
Object.assign(go, %s, { exit: (status) => { Status = status; } });
WebAssembly.instantiateStreaming(fetch("test.wasm"), go.importObject)
  .then((program) => go.run(program.instance))
  .catch((error) => { Output += error; })
  .finally(() => fetch("result", { method: "POST", body: JSON.stringify({ Output, Status }) }));
</script>
`

// runInChromium runs a test program in a page of another origin than the service.
func runInChromium(t *testing.T, program string, env map[string]string, args ...string) result {
	t.Helper()
	chromium := find(t, "chromium")
	settings, err := json.Marshal(map[string]any{"env": env, "argv": append([]string{"test"}, args...)})
	require.NoError(t, err)
	results := make(chan result, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, page, settings) })
	mux.HandleFunc("GET /test.wasm", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, program) })
	mux.Handle("GET /wasm_exec.js", http.FileServer(http.Dir(wasmDir(t))))
	mux.HandleFunc("POST /result", func(_ http.ResponseWriter, r *http.Request) {
		var got result
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		results <- got
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+t.TempDir(), server.URL)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { stop(); <-ended }()
	select {
	case got := <-results:
		return got
	case <-ended:
		require.Fail(t, "Chromium ended without a result", "%s", log.String())
		return result{}
	}
}

// find returns the path of a program. If it is not installed, find skips the test or, in CI,
// fails it.
func find(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("%v: apt-get install %s", err, strings.Replace(program, "node", "nodejs", 1))
	}
	require.NoError(t, err)
	return path
}

func wasmDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "lib/wasm")
}

// compile compiles the tests of a package to WebAssembly.
func compile(t *testing.T, pkg string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "test.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, pkg)
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

var hosts = map[string]func(t *testing.T, program string, env map[string]string, args ...string) result{
	"node": runInNode, "Chromium": runInChromium,
}

// A service is the fake server behind a gateway, which allows requests from other origins,
// and the target of the gateway's redirects.
type service struct {
	env     map[string]string // of the test program
	mu      sync.Mutex
	headers []http.Header // of the requests to the gateway
	stolen  []string      // requests to the target of the redirects
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{}
	fake := msgpushtest.New(t)
	fake.SetRecords(msgpushtest.SampleRecords())
	fakeURL, err := url.Parse(fake.URL)
	require.NoError(t, err)

	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stolen = append(s.stolen, fmt.Sprintf("%s %s access-key=%q", r.Method, r.URL, r.Header.Get("access-key")))
		for _, name := range []string{"Origin", "Headers", "Methods"} {
			w.Header().Set("Access-Control-Allow-"+name, "*")
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"code":200,"data":{"id":1,"list":[]}}`)
	}))
	t.Cleanup(elsewhere.Close)
	target := strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) + "/stolen"

	mux := http.NewServeMux()
	mux.HandleFunc("/redirect/{status}/", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.PathValue("status"))
		w.Header().Set("Location", target)
		w.WriteHeader(status)
	})
	mux.HandleFunc("/stall/header/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/stall/body/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "{")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/unavailable/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(fakeURL) }})
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.headers = append(s.headers, r.Header.Clone())
		s.mu.Unlock()
		body, _ := io.ReadAll(r.Body) // net/http ends the context of a request only if its body was read
		r.Body = io.NopCloser(bytes.NewReader(body))
		// docs/reliability.md names these headers.
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Headers", "access-key, content-type")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		w.Header().Set("Access-Control-Allow-Methods", "PUT") // GET and POST need no permission
		if r.Method == http.MethodOptions {
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(gateway.Close)
	s.env = map[string]string{"SERVICE": gateway.URL, "ACCESS_KEY": fake.AccessKey()}
	return s
}

func TestClient(t *testing.T) {
	program := compile(t, ".")
	for host, run := range hosts {
		t.Run(host, func(t *testing.T) {
			s := newService(t)
			env := maps.Clone(s.env)
			env["HOST"] = host
			got := run(t, program, env)
			assert.Zero(t, got.Status, "%s", got.Output)
			assert.Contains(t, got.Output, "PASS")
			assert.Empty(t, s.stolen, "requests to another host")
		})
	}
}

// In a browser, a test reaches the fake server only through its own clients, and has no files.
func TestFakeServerInChromium(t *testing.T) {
	program := compile(t, "example.com/msgpush/msgpushtest")
	got := runInChromium(t, program, map[string]string{}, "-test.short", "-test.timeout=1m",
		"-test.run=^(TestBubble|TestFaults|TestUpdate)")
	assert.Zero(t, got.Status, "%s", got.Output)
	assert.Contains(t, got.Output, "PASS")
}
