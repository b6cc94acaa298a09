package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

func TestMain(m *testing.M) { clitest.Main(m, main) }

func TestUsage(t *testing.T) {
	clitest.TestUsage(
		t,
		"export",
		[]string{"-match-result CODE", "-o FILE"},
		[]string{
			"-rule",
			"x",
		},
		[]string{"-match-result", ""},
		[]string{"-format", "xml"},
		[]string{"-o", ""},
		[]string{"-resume"},
		[]string{"-resume", "-o", "-"},
		[]string{"-page-size", "0"},
		[]string{"-prefetch", "-1"},
	)
}

func TestSettings(t *testing.T)    { clitest.TestSettings(t, "export") }
func TestRejectedKey(t *testing.T) { clitest.TestRejectedKey(t, "export") }
func TestClosedPipe(t *testing.T)  { clitest.TestClosedPipe(t) }
func TestInterrupt(t *testing.T)   { clitest.TestInterrupt(t, "export") }

// A proxy forwards all requests to a fake server except those for one page.
type proxy struct {
	fake *msgpushtest.Server
	env  []string
}

// newProxy returns a proxy for a fake server with records. fault handles the requests
// for page; if page is 0, no request.
func newProxy(t *testing.T, records []msgpush.ForwardLog, page int, fault http.HandlerFunc) proxy {
	t.Helper()
	fake := msgpushtest.New(t)
	fake.SetRecords(msgpushtest.Records{ForwardLogs: records})
	target, err := url.Parse(fake.URL)
	require.NoError(t, err)
	reverse := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request msgpush.PageRequest
		if err != nil || json.Unmarshal(body, &request) != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		if request.Current == page {
			fault(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		reverse.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return proxy{fake, clitest.Environment(server.URL, fake.AccessKey())}
}

// forbidden is a fault that the client does not retry.
func forbidden(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusForbidden)
}

// logs returns records with descending ids.
func logs(high, low int64) []msgpush.ForwardLog {
	var records []msgpush.ForwardLog
	for id := high; id >= low; id-- {
		records = append(records,
			msgpush.ForwardLog{ID: id, RuleID: id % 2, MatchResult: int(id % 3), ErrorMessage: "one\n\"two\", three"})
	}
	return records
}

// idsIn returns the sorted ids in a file.
func idsIn(t *testing.T, f format, name string) []int64 {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	var ids []int64
	complete, err := f.read(file, func(r msgpush.ForwardLog) error {
		ids = append(ids, r.ID)
		return nil
	})
	require.NoError(t, err)
	info, err := file.Stat()
	require.NoError(t, err)
	assert.Equal(t, info.Size(), complete, "the last record is complete")
	slices.Sort(ids)
	return ids
}

func numbers(n int64) []int64 {
	var ids []int64
	for id := range n {
		ids = append(ids, id+1)
	}
	return ids
}

func TestWritesSampleRecordsAsCSV(t *testing.T) {
	cmd := clitest.Command(nil, "-o", "-")
	cmd.Dir = t.TempDir()
	stdout, stderr, status := clitest.Output(t, cmd)
	assert.Zero(t, status)
	assert.Regexp(t, `^export: using a fake server at .*\n$`, stderr)
	assert.NoFileExists(t, filepath.Join(cmd.Dir, "-"))
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 65)
	assert.Equal(t, columns, rows[0])
	for i, r := range msgpushtest.SampleRecords().ForwardLogs {
		assert.Equal(t, []string{
			fmt.Sprint(r.ID), fmt.Sprint(r.RuleID), r.RuleName, fmt.Sprint(r.SourceType), r.SourceTypeName, r.RequestIP,
			fmt.Sprint(r.MatchResult), r.MatchResultName, r.ShortCodes, r.ErrorMessage, string(r.CreateTime),
		}, rows[i+1])
	}
}

func TestJSONLinesContainTheUnchangedRecords(t *testing.T) {
	f := newProxy(t, append(logs(3, 1), msgpush.ForwardLog{ID: 9, RuleName: "CPU > 90 % & \x1b[31m\u2028\r\n"}), 0, nil)
	stdout, stderr, status := clitest.Run(t, f.env, "-format", "jsonl", "-page-size", "2", "-prefetch", "0")
	assert.Zero(t, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, `"CPU > 90 % & `)
	var got []msgpush.ForwardLog
	for line := range strings.Lines(stdout) {
		var r msgpush.ForwardLog
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		got = append(got, r)
	}
	assert.Equal(t, append(logs(3, 1), msgpush.ForwardLog{ID: 9, RuleName: "CPU > 90 % & \x1b[31m\u2028\r\n"}), got)
}

func TestCSVHasAColumnForEachMember(t *testing.T) {
	data, err := json.Marshal(msgpush.ForwardLog{})
	require.NoError(t, err)
	members := map[string]any{}
	require.NoError(t, json.Unmarshal(data, &members))
	assert.Len(t, members, len(columns))
	for _, column := range columns {
		assert.Contains(t, members, column)
	}
}

func TestRecordsAreFiltered(t *testing.T) {
	f := newProxy(t, logs(12, 1), 0, nil)
	tests := []struct {
		args []string
		want []int64
	}{
		{nil, numbers(12)},
		{[]string{"-rule", "0"}, []int64{2, 4, 6, 8, 10, 12}},
		{[]string{"-rule", "1"}, []int64{1, 3, 5, 7, 9, 11}},
		{[]string{"-match-result", "0"}, []int64{3, 6, 9, 12}},
		{[]string{"-rule", "1", "-match-result", "2"}, []int64{5, 11}},
		{[]string{"-match-result", "-1"}, nil},
	}
	for _, tt := range tests {
		for name, format := range map[string]format{"csv": csvFormat{}, "jsonl": jsonlFormat{}} {
			file := filepath.Join(t.TempDir(), "records")
			stdout, stderr, status := clitest.Run(t, f.env, append(tt.args, "-format", name, "-o", file, "-page-size", "5")...)
			assert.Zero(t, status)
			assert.Empty(t, stdout)
			assert.Equal(t, fmt.Sprintf("%d records in %s\n", len(tt.want), file), stderr)
			assert.Equal(t, tt.want, idsIn(t, format, file))
			assert.NoFileExists(t, file+".part")
		}
	}
}

// Records are inserted and deleted before the export is resumed.
func TestResumeAfterAFailure(t *testing.T) {
	for name, format := range map[string]format{"csv": csvFormat{}, "jsonl": jsonlFormat{}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "records")
			require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
			args := []string{"-format", name, "-o", file, "-page-size", "3"}

			f := newProxy(t, logs(11, 3), 3, forbidden)
			stdout, stderr, status := clitest.Run(t, f.env, args...)
			assert.Equal(t, 1, status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, "export: msgpush: page 3: ")
			assert.Contains(t, stderr, "-resume")
			assert.Equal(t, 1, strings.Count(stderr, "\n"))
			old, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, "old\n", string(old))
			assert.Equal(t, []int64{6, 7, 8, 9, 10, 11}, idsIn(t, format, file+".part"))

			_, stderr, status = clitest.Run(t, f.env, args...)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, "use -resume to continue, or remove it")

			healthy := newProxy(t, append(logs(15, 8), logs(6, 1)...), 0, nil)
			_, stderr, status = clitest.Run(t, healthy.env, append(args, "-resume")...)
			assert.Zero(t, status, stderr)
			assert.Equal(t, "15 records in "+file+", 9 of them new\n", stderr)
			assert.Equal(t, numbers(15), idsIn(t, format, file))
			assert.NoFileExists(t, file+".part")
		})
	}
}

func TestIncompleteRecordIsRemoved(t *testing.T) {
	for name, format := range map[string]format{"csv": csvFormat{}, "jsonl": jsonlFormat{}} {
		t.Run(name, func(t *testing.T) {
			var content bytes.Buffer
			out := format.encoder(&content)
			require.NoError(t, out.header())
			ends := []int{}
			for _, r := range logs(3, 1) {
				require.NoError(t, out.flush())
				ends = append(ends, content.Len())
				require.NoError(t, out.encode(r))
			}
			require.NoError(t, out.flush())
			ends = append(ends, content.Len())

			file := filepath.Join(t.TempDir(), "records")
			for length := range content.Len() + 1 {
				require.NoError(t, os.WriteFile(file, content.Bytes()[:length], 0o600))
				part, err := os.OpenFile(file, os.O_RDWR, 0)
				require.NoError(t, err)
				ids, err := (&settings{format: format}).readPart(part)
				require.NoError(t, err, "%q", content.Bytes()[:length])
				kept, want := 0, 0
				for i, end := range ends {
					if end <= length {
						kept, want = end, i
					}
				}
				info, err := part.Stat()
				require.NoError(t, err)
				assert.Equal(t, int64(kept), info.Size(), "of %q", content.Bytes()[:length])
				assert.Len(t, ids, want)
				at, err := part.Seek(0, io.SeekCurrent)
				require.NoError(t, err)
				assert.Equal(t, int64(kept), at)
				require.NoError(t, part.Close())
			}
		})
	}
}

func TestResumeRejectsAFileOfAnotherKind(t *testing.T) {
	f := newProxy(t, logs(3, 1), 0, nil)
	header := strings.Join(columns, ",") + "\n"
	tests := []struct {
		name, format, part string
		args               []string
		want               string
	}{
		{"other format", "csv", "{\"id\":1}\n{\"id\":2}\n", nil, "bare \""},
		{"other columns", "csv", strings.ReplaceAll(header, "ruleId", "rule") + "\n", nil, "not the header"},
		{"row is not a record", "csv", header + "x,1,,1,,,1,,,,\n1,1,,1,,,1,,,,\n", nil, `"x"`},
		{"quote in the middle", "csv", header + "1,\"1\"2,,1,,,1,,,,\n1,1,,1,,,1,,,,\n", nil, "quoted-field"},
		{"CSV as lines of JSON", "jsonl", header, nil, "line 1 is not a record"},
		{"other rule", "csv", header + "1,1,,1,,,2,,,,\n", []string{"-rule", "0"}, "not started with -rule 0"},
		{"other match result",
			"jsonl", "{\"id\":7,\"matchResult\":2}\n", []string{"-match-result", "0"}, "record 7 has match result 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "records")
			require.NoError(t, os.WriteFile(file+".part", []byte(tt.part), 0o600))
			_, stderr, status := clitest.Run(t, f.env, append(tt.args, "-format", tt.format, "-o", file, "-resume")...)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, tt.want)
			assert.Contains(t, stderr, "remove it to start from the beginning")
			assert.NoFileExists(t, file)
			part, err := os.ReadFile(file + ".part")
			require.NoError(t, err)
			assert.Equal(t, tt.part, string(part), "the file is unchanged")
		})
	}
}

func TestInterruptKeepsPartialOutput(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows processes cannot be sent an interrupt")
	}
	requested := make(chan struct{})
	f := newProxy(t, logs(9, 1), 3, func(_ http.ResponseWriter, r *http.Request) {
		close(requested)
		<-r.Context().Done()
	})
	file := filepath.Join(t.TempDir(), "records")
	require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
	cmd := clitest.Command(f.env, "-o", file, "-page-size", "3", "-prefetch", "0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	<-requested
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Equal(t, "export: interrupted; partial output is kept in "+file+".part: use -resume to continue\n",
		stderr.String())
	old, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "old\n", string(old))
	assert.Equal(t, []int64{4, 5, 6, 7, 8, 9}, idsIn(t, csvFormat{}, file+".part"))
}

func TestFailures(t *testing.T) {
	f := newProxy(t, logs(3, 1), 1, forbidden)
	dir := t.TempDir()
	tests := []struct {
		name string
		file string
		want string
	}{
		{"standard output", "-", "page 1"},
		{"file", filepath.Join(dir, "records"), "page 1"},
		{"file is a directory", dir, "not a regular file"},
		{"directory is missing", filepath.Join(dir, "none", "records"), "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := clitest.Run(t, f.env, "-o", tt.file)
			assert.Equal(t, 1, status)
			assert.NotContains(t, stdout, "\n1,")
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"))
			assert.NotContains(t, stderr, f.fake.AccessKey())
		})
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "a FILE.part without records is removed")
}

// onTerminal runs the program with a terminal as its standard error and, if both is set,
// its standard output. It returns the output.
func onTerminal(t *testing.T, env []string, both bool, args ...string) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skip("no terminal is available: ", err)
	}
	defer terminal.Close()
	require.NoError(t, pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 120}))
	cmd := clitest.Command(env, args...)
	cmd.Stderr = tty
	if both {
		cmd.Stdout = tty
	}
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	shown, _ := io.ReadAll(terminal) // on Linux, reading ends with an error
	require.NoError(t, cmd.Wait())
	return string(shown)
}

func TestProgressOnATerminal(t *testing.T) {
	f := newProxy(t, logs(7, 1), 0, nil)
	shown := onTerminal(t, f.env, false, "-o", filepath.Join(t.TempDir(), "records"), "-page-size", "2")
	assert.Contains(t, shown, "(2/7, ")
	assert.Contains(t, shown, "(7/7, ")
	assert.Contains(t, shown, "records/s")
	assert.Contains(t, shown, "\r7 records in ", "the bar is removed")
}

func TestRecordsDoNotControlTheTerminal(t *testing.T) {
	record := msgpush.ForwardLog{ID: 1}
	const text = "a\x1b[2Jb\u009bc\nd"
	record.RuleName, record.SourceTypeName, record.RequestIP = text, text, text
	record.MatchResultName, record.ShortCodes, record.ErrorMessage, record.CreateTime = text, text, text, text
	f := newProxy(t, []msgpush.ForwardLog{record}, 0, nil)
	for _, format := range []string{"csv", "jsonl"} {
		shown := onTerminal(t, f.env, true, "-format", format)
		assert.Equal(t, 7, strings.Count(shown, "a [2Jb c d"))
		assert.NotContains(t, shown, "\x1b")
		assert.NotContains(t, shown, "\u009b")
		assert.NotContains(t, shown, "1/1", "no bar among the records")
	}
}
