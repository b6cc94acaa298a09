package contract_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

// A program is a running example program.
type program struct {
	*exec.Cmd
	server *msgpushtest.Server
	addr   chan string   // receives the address from the log line "listening"
	ended  chan struct{} // closed at the end of stderr
	log    strings.Builder
}

func (p *program) readLog(stderr io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.log.WriteString(lines.Text() + "\n")
		var line struct{ Msg, Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			p.addr <- line.Addr
		}
	}
}

// Each example program sends its requests through a proxy that validates them.
func TestExampleProgramsMatchOpenAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the example programs")
	}
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt")
	}
	dir := t.TempDir()
	tests := map[string]struct {
		args []string
		min  int                        // exchanges
		use  func(*testing.T, *program) // the program is interrupted afterwards; nil: it ends without that
	}{
		"quickstart":    {nil, 4, nil},
		"export":        {nil, 1, nil},
		"report":        {[]string{"-o", filepath.Join(dir, "report.html")}, 2, nil},
		"observability": {nil, 2, nil},
		"archive":       {[]string{"-once", "-db", filepath.Join(dir, "archive.db")}, 2, nil},
		"fleet":         {[]string{"-rate", "100"}, 6, nil},
		"watch": {[]string{"-n", "2", "-interval", "1s"}, 1, func(t *testing.T, p *program) {
			_, err := p.server.WaitForRequest(t.Context(), 2)
			assert.NoError(t, err)
		}},
		"service": {[]string{"-addr", "127.0.0.1:0"}, 2, func(t *testing.T, p *program) {
			select {
			case addr := <-p.addr:
				for _, path := range []string{"/rules", "/failures", "/readyz"} {
					require.Eventually(t, func() bool { // /readyz fails until a poll has succeeded
						response, err := http.Get("http://" + addr + path)
						if err != nil {
							return false
						}
						response.Body.Close()
						return response.StatusCode == http.StatusOK
					}, 10*time.Second, 10*time.Millisecond, path)
				}
			case <-p.ended:
				t.Error("the program does not listen")
			}
		}},
	}
	examples, err := os.ReadDir("../../examples")
	require.NoError(t, err)
	examples = slices.DeleteFunc(examples, func(e os.DirEntry) bool {
		return !e.IsDir() || e.Name() == "internal" || e.Name() == "fakeserver" // fakeserver sends no requests
	})
	assert.Len(t, tests, len(examples))
	for _, example := range examples {
		t.Run(example.Name(), func(t *testing.T) {
			tt, ok := tests[example.Name()]
			require.True(t, ok, "the example has no test")
			binary := buildExample(t, example.Name())
			server := msgpushtest.New(t)
			server.SetRecords(msgpushtest.SampleRecords())
			target, err := url.Parse(server.URL)
			require.NoError(t, err)
			v := newValidator(load(t), http.DefaultTransport)
			proxy := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
				Transport: v,
			})
			defer proxy.Close()

			p := &program{
				Cmd:    exec.CommandContext(t.Context(), binary, tt.args...),
				server: server,
				addr:   make(chan string, 1),
				ended:  make(chan struct{}),
			}
			p.Env = append(os.Environ(), "MSGPUSH_BASE_URL="+proxy.URL, "MSGPUSH_ACCESS_KEY="+server.AccessKey(),
				"MSGPUSH_MAIL_ID="+msgpushtest.SampleMailID)
			stderr, err := p.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, p.Start())
			go p.readLog(stderr)
			if tt.use != nil {
				tt.use(t, p)
				assert.NoError(t, p.Process.Signal(os.Interrupt))
			}
			<-p.ended
			_ = p.Wait()
			if tt.use == nil || example.Name() == "service" {
				assert.Zero(t, p.ProcessState.ExitCode(), p.log.String())
			} else {
				assert.Equal(t, 130, p.ProcessState.ExitCode(), "interrupted: %s", p.log.String())
			}
			all, exchanges := v.result()
			assert.Empty(t, all)
			assert.GreaterOrEqual(t, exchanges, tt.min)
		})
	}
}

func TestProgramsInOtherLanguagesAskForFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("builds fakeserver")
	}
	t.Parallel()
	url, key := startFakeServer(t)
	for _, command := range [][]string{{"python3", "faults.py"}, {"node", "faults.mjs"}} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "MSGPUSH_BASE_URL="+url, "MSGPUSH_ACCESS_KEY="+key)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s", command[1], out)
	}
}

// startFakeServer starts the program fakeserver until the test ends, and returns its URL and
// access key.
func startFakeServer(t *testing.T, args ...string) (url, key string) {
	t.Helper()
	binary := buildExample(t, "fakeserver")
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the context of the test has ended
	_, err = fmt.Fscanf(stdout, "MSGPUSH_BASE_URL=%s\nMSGPUSH_ACCESS_KEY=%s\n", &url, &key)
	require.NoError(t, err)
	return url, key
}

// buildExample builds an example program and returns its path.
func buildExample(t *testing.T, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir = filepath.Join("../../examples", name)
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}
