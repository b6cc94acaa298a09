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
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// TestMain lets the tests run the program: the binary of the tests is the
// program if its environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("BE_EXPORT") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program returns the program as a command, with nothing but env in its
// environment.
func program(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{
		"BE_EXPORT=1", "SYSTEMROOT=" + os.Getenv("SYSTEMROOT"),
		"GORACE=atexit_sleep_ms=0", // or the race detector makes each run a second longer
	}, env...)
	return cmd
}

// export runs the program to its end.
func export(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := program(env, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// A front stands before a stand-in, and has it answer for all pages but one.
type front struct {
	service *msgpushtest.Server
	env     []string
}

// newFront returns a front with records from which fault answers for the page of
// that number. 0 is none.
func newFront(t *testing.T, records []msgpush.ForwardLog, page int, fault http.HandlerFunc) front {
	t.Helper()
	service := msgpushtest.NewServer()
	t.Cleanup(service.Close)
	service.SetRecords(msgpushtest.Records{ForwardLogs: records})
	target, err := url.Parse(service.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var asked msgpush.PageRequest
		if err != nil || json.Unmarshal(body, &asked) != nil {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		if asked.Current == page {
			fault(w, r)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return front{service, []string{"MSGPUSH_BASE_URL=" + server.URL, "MSGPUSH_ACCESS_KEY=" + service.AccessKey()}}
}

// refused is a fault that the client does not try again.
func refused(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusForbidden)
}

// logs returns records with the ids from high down to low.
func logs(high, low int64) []msgpush.ForwardLog {
	var records []msgpush.ForwardLog
	for id := high; id >= low; id-- {
		records = append(records, msgpush.ForwardLog{ID: id, RuleID: id % 2, MatchResult: int(id % 3), ErrorMessage: "one\n\"two\", three"})
	}
	return records
}

// idsIn returns the ids in a file, sorted.
func idsIn(t *testing.T, f format, name string) []int64 {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	var ids []int64
	whole, err := f.read(file, func(r msgpush.ForwardLog) error {
		ids = append(ids, r.ID)
		return nil
	})
	require.NoError(t, err)
	info, err := file.Stat()
	require.NoError(t, err)
	assert.Equal(t, info.Size(), whole, "nothing of the file is torn")
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

func TestWithoutSetUpTheStandInIsExportedAsCSV(t *testing.T) {
	stdout, stderr, status := export(t, nil)
	assert.Zero(t, status)
	assert.Equal(t, 1, strings.Count(stderr, "\n"))
	assert.Contains(t, stderr, "stand-in")
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

func TestLinesOfJSONHaveTheRecordsAsTheyAre(t *testing.T) {
	f := newFront(t, append(logs(3, 1), msgpush.ForwardLog{ID: 9, RuleName: "CPU > 90 % & \x1b[31m\u2028\r\n"}), 0, nil)
	stdout, stderr, status := export(t, f.env, "-format", "jsonl", "-page-size", "2", "-prefetch", "0")
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

func TestCSVHasOneColumnForEachMemberOfARecord(t *testing.T) {
	data, err := json.Marshal(msgpush.ForwardLog{})
	require.NoError(t, err)
	members := map[string]any{}
	require.NoError(t, json.Unmarshal(data, &members))
	assert.Len(t, members, len(columns))
	for _, column := range columns {
		assert.Contains(t, members, column)
	}
}

func TestRecordsAreChosen(t *testing.T) {
	f := newFront(t, logs(12, 1), 0, nil)
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
			stdout, stderr, status := export(t, f.env, append(tt.args, "-format", name, "-o", file, "-page-size", "5")...)
			assert.Zero(t, status)
			assert.Empty(t, stdout)
			assert.Equal(t, fmt.Sprintf("%d records in %s\n", len(tt.want), file), stderr)
			assert.Equal(t, tt.want, idsIn(t, format, file))
			assert.NoFileExists(t, file+".part")
		}
	}
}

// A run fails, records arrive and go, and another goes on with what there is,
// with its end torn off at any place.
func TestAFailedRunIsGoneOnWith(t *testing.T) {
	for name, format := range map[string]format{"csv": csvFormat{}, "jsonl": jsonlFormat{}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "records")
			require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
			args := []string{"-format", name, "-o", file, "-page-size", "3"}

			f := newFront(t, logs(11, 3), 3, refused)
			stdout, stderr, status := export(t, f.env, args...)
			assert.Equal(t, 1, status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, "export: msgpush: page 3: ")
			assert.Contains(t, stderr, "-resume")
			assert.Equal(t, 1, strings.Count(stderr, "\n"))
			old, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, "old\n", string(old))
			assert.Equal(t, []int64{6, 7, 8, 9, 10, 11}, idsIn(t, format, file+".part"))

			_, stderr, status = export(t, f.env, args...)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, "go on with it by -resume, or remove it")

			healthy := newFront(t, append(logs(15, 8), logs(6, 1)...), 0, nil)
			_, stderr, status = export(t, healthy.env, append(args, "-resume")...)
			assert.Zero(t, status, stderr)
			assert.Equal(t, "15 records in "+file+", 9 of them new\n", stderr)
			assert.Equal(t, numbers(15), idsIn(t, format, file))
			assert.NoFileExists(t, file+".part")
		})
	}
}

func TestATornRecordIsCutOff(t *testing.T) {
	for name, format := range map[string]format{"csv": csvFormat{}, "jsonl": jsonlFormat{}} {
		t.Run(name, func(t *testing.T) {
			var whole bytes.Buffer
			out := format.encoder(&whole)
			require.NoError(t, out.header())
			ends := []int{}
			for _, r := range logs(3, 1) {
				require.NoError(t, out.flush())
				ends = append(ends, whole.Len())
				require.NoError(t, out.encode(r))
			}
			require.NoError(t, out.flush())
			ends = append(ends, whole.Len())

			file := filepath.Join(t.TempDir(), "torn")
			for length := range whole.Len() + 1 {
				require.NoError(t, os.WriteFile(file, whole.Bytes()[:length], 0o600))
				part, err := os.OpenFile(file, os.O_RDWR, 0)
				require.NoError(t, err)
				ids, err := (&settings{format: format}).present(part)
				require.NoError(t, err, "%q", whole.Bytes()[:length])
				kept, want := 0, 0
				for i, end := range ends {
					if end <= length {
						kept, want = end, i
					}
				}
				info, err := part.Stat()
				require.NoError(t, err)
				assert.Equal(t, int64(kept), info.Size(), "of %q", whole.Bytes()[:length])
				assert.Len(t, ids, want)
				at, err := part.Seek(0, io.SeekCurrent)
				require.NoError(t, err)
				assert.Equal(t, int64(kept), at)
				require.NoError(t, part.Close())
			}
		})
	}
}

func TestAFileThatIsOfAnotherKindIsNotGoneOnWith(t *testing.T) {
	f := newFront(t, logs(3, 1), 0, nil)
	header := strings.Join(columns, ",") + "\n"
	tests := []struct {
		name, format, part string
		args               []string
		want               string
	}{
		{"other format", "csv", "{\"id\":1}\n{\"id\":2}\n", nil, "bare \""},
		{"other columns", "csv", strings.ReplaceAll(header, "ruleId", "rule") + "\n", nil, "not the header"},
		{"row that is no record", "csv", header + "x,1,,1,,,1,,,,\n1,1,,1,,,1,,,,\n", nil, `"x"`},
		{"quote in the middle", "csv", header + "1,\"1\"2,,1,,,1,,,,\n1,1,,1,,,1,,,,\n", nil, "quoted-field"},
		{"CSV as lines of JSON", "jsonl", header, nil, "line 1 is not a record"},
		{"other rule", "csv", header + "1,1,,1,,,2,,,,\n", []string{"-rule", "0"}, "not begun with -rule 0"},
		{"other match result", "jsonl", "{\"id\":7,\"matchResult\":2}\n", []string{"-match-result", "0"}, "record 7 has the match result 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "records")
			require.NoError(t, os.WriteFile(file+".part", []byte(tt.part), 0o600))
			_, stderr, status := export(t, f.env, append(tt.args, "-format", tt.format, "-o", file, "-resume")...)
			assert.Equal(t, 1, status)
			assert.Contains(t, stderr, tt.want)
			assert.Contains(t, stderr, "remove it to begin anew")
			assert.NoFileExists(t, file)
			part, err := os.ReadFile(file + ".part")
			require.NoError(t, err)
			assert.Equal(t, tt.part, string(part), "it is left as it was")
		})
	}
}

func TestAnInterruptLeavesTheFileAsItWas(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no process can be interrupted from another one")
	}
	asked := make(chan struct{})
	f := newFront(t, logs(9, 1), 3, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	file := filepath.Join(t.TempDir(), "records")
	require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
	cmd := program(f.env, "-o", file, "-page-size", "3", "-prefetch", "0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	<-asked
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Equal(t, "export: interrupted; what there is is in "+file+".part: -resume goes on with it\n", stderr.String())
	old, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "old\n", string(old))
	assert.Equal(t, []int64{4, 5, 6, 7, 8, 9}, idsIn(t, csvFormat{}, file+".part"))
}

func TestFailuresGoToStderrWithStatus1(t *testing.T) {
	f := newFront(t, logs(3, 1), 1, refused)
	dir := t.TempDir()
	tests := []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"no key", f.env[:1], nil, "set MSGPUSH_ACCESS_KEY too"},
		{"no URL", f.env[1:], nil, "set MSGPUSH_BASE_URL too"},
		{"bad URL", []string{"MSGPUSH_BASE_URL=push.example.com", f.env[1]}, nil, "base URL"},
		{"refused", f.env, nil, "page 1"},
		{"refused with a file", f.env, []string{"-o", filepath.Join(dir, "refused")}, "page 1"},
		{"directory", f.env, []string{"-o", dir}, "not a regular file"},
		{"no directory", f.env, []string{"-o", filepath.Join(dir, "none", "file")}, "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := export(t, tt.env, tt.args...)
			assert.Equal(t, 1, status)
			assert.NotContains(t, stdout, "\n1,")
			assert.Contains(t, stderr, tt.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"))
			assert.NotContains(t, stderr, f.service.AccessKey())
		})
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "an unfinished file without records is of no use")
}

func TestAClosedPipeIsAFailure(t *testing.T) {
	f := newFront(t, logs(3, 1), 0, nil)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer writer.Close()
	cmd := program(f.env)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = writer, &stderr
	_ = cmd.Run()
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.True(t, strings.HasPrefix(stderr.String(), "export: write "), stderr.String())
	assert.Equal(t, 1, strings.Count(stderr.String(), "\n"))
}

func TestUsage(t *testing.T) {
	stdout, stderr, status := export(t, nil, "-h")
	assert.Zero(t, status)
	assert.Equal(t, usage, stdout+stderr)
	for _, args := range [][]string{
		{"-rule", "x"}, {"-match-result", ""}, {"-format", "xml"}, {"-resume"}, {"-page-size", "0"}, {"-prefetch", "-1"}, {"file"}, {"-what"},
	} {
		stdout, stderr, status = export(t, nil, args...)
		assert.Equal(t, 2, status, args)
		assert.Empty(t, stdout)
		assert.NotEmpty(t, stderr)
		assert.NotContains(t, stderr, "stand-in at")
	}
}

// onTerminal runs the program with a terminal as its stderr and, if asked to,
// its stdout, and returns what it shows there.
func onTerminal(t *testing.T, env []string, both bool, args ...string) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skip("no terminal is to be had: ", err)
	}
	defer terminal.Close()
	require.NoError(t, pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 120}))
	cmd := program(env, args...)
	cmd.Stderr = tty
	if both {
		cmd.Stdout = tty
	}
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	shown, _ := io.ReadAll(terminal) // ends in an error where the other side closes
	require.NoError(t, cmd.Wait())
	return string(shown)
}

func TestATerminalShowsTheProgress(t *testing.T) {
	f := newFront(t, logs(7, 1), 0, nil)
	shown := onTerminal(t, f.env, false, "-o", filepath.Join(t.TempDir(), "records"), "-page-size", "2")
	assert.Contains(t, shown, "(2/7, ")
	assert.Contains(t, shown, "(7/7, ")
	assert.Contains(t, shown, "records/s")
	assert.Contains(t, shown, "\r7 records in ", "the bar makes way for it")
}

func TestWhatATerminalIsShownDoesNotSteerIt(t *testing.T) {
	steering := msgpush.ForwardLog{ID: 1}
	const text = "a\x1b[2Jb\u009bc\nd"
	steering.RuleName, steering.SourceTypeName, steering.RequestIP = text, text, text
	steering.MatchResultName, steering.ShortCodes, steering.ErrorMessage, steering.CreateTime = text, text, text, text
	f := newFront(t, []msgpush.ForwardLog{steering}, 0, nil)
	for _, format := range []string{"csv", "jsonl"} {
		shown := onTerminal(t, f.env, true, "-format", format)
		assert.Equal(t, 7, strings.Count(shown, "a [2Jb c d"))
		assert.NotContains(t, shown, "\x1b")
		assert.NotContains(t, shown, "\u009b")
		assert.NotContains(t, shown, "1/1", "no bar between the records")
	}
}
