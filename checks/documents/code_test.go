package documents

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/cassette"
	_ "modernc.org/sqlite" // for the code of the documents

	"example.com/msgpush/msgpushtest"
)

var (
	goBlock      = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	newError     = regexp.MustCompile(`, err := (msgpush|client|follow|sql)\.`)
)

// program runs a block of statements with a fake server. A block that follows a list does
// not end: it is stopped.
const program = `package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	_ "modernc.org/sqlite"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/follow/followsql"
	"example.com/msgpush/msgpushtest"
)

var (
	_ follow.Options
	_ followsql.Position
	_ = errors.Is
	_ = fmt.Println
	_ = http.NotFound
	_ time.Duration
)

var f follow.Follower[msgpush.ForwardLog]

var db, _ = sql.Open("sqlite", ":memory:")

func save(context.Context, *sql.Tx, follow.Batch[msgpush.ForwardLog]) error { return nil }

type keys struct{ key string }

func (k keys) Key(context.Context) (string, time.Time, error) { return k.key, time.Time{}, nil }

func main() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	db.SetMaxOpenConns(1) // the database in memory belongs to one connection
	err := block(ctx, srv.Client(), keys{srv.AccessKey()}, srv.URL, srv.AccessKey(), msgpushtest.SampleMailID)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		log.Fatal(err)
	}
}

func block(ctx context.Context, client *msgpush.Client, vault keys, baseURL, accessKey, mailID string) error {
	BLOCK
	_ = client
	return err
}
`

// The test adds a database to the outbox of docs/following.md.
func TestOutboxOfDocsSurvivesRestart(t *testing.T) {
	var source string
	for _, match := range goBlock.FindAllStringSubmatch(read(t, "docs/following.md"), -1) {
		if strings.HasPrefix(match[1], "package alerts\n") {
			source = match[1]
		}
	}
	dir := t.TempDir()
	program, test := filepath.Join(dir, "alerts.go"), filepath.Join(dir, "alerts_test.go")
	require.NoError(t, os.WriteFile(program, []byte(source), 0o600))
	testSource, err := os.ReadFile("testdata/outbox.txt")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(test, testSource, 0o600))
	out := runGo(t, "test", "-v", program, test)
	assert.Contains(t, out, "--- PASS: TestOutbox ")
}

func TestCodeInDocumentsRuns(t *testing.T) {
	for _, name := range []string{"README.md", "docs/following.md", "docs/lists.md", "docs/reliability.md"} {
		assertCodeRuns(t, name)
	}
}

// The code needs the modules of the examples.
func TestCodeOfObservabilityCompiles(t *testing.T) {
	block := goBlock.FindStringSubmatch(read(t, "docs/observability.md"))
	require.NotNil(t, block)
	assertFormatted(t, block[1])
	file := filepath.Join(t.TempDir(), "observed.go")
	require.NoError(t, os.WriteFile(file, []byte(block[1]), 0o600))
	runGo(t, "-C", "../../examples", "vet", file)
}

func assertFormatted(t *testing.T, source string) {
	t.Helper()
	formatted, err := format.Source([]byte(source))
	require.NoError(t, err, source)
	assert.Equal(t, string(formatted), source, "gofmt")
}

// The test that records responses runs twice: it records responses of the fake server, and then
// replays them without the server.
func TestCodeInTestingDocumentRuns(t *testing.T) {
	srv := msgpushtest.New(t)
	srv.SetRecords(msgpushtest.SampleRecords())
	replace := strings.NewReplacer("https://push.example.com", srv.URL)
	t.Setenv("MSGPUSH_ACCESS_KEY", srv.AccessKey())
	dir := assertCodeRuns(t, "docs/testing.md", replace)

	recorded, err := cassette.Load(filepath.Join(dir, "testdata", "mail"))
	require.NoError(t, err)
	require.Len(t, recorded.Interactions, 1)
	text, err := os.ReadFile(recorded.File)
	require.NoError(t, err)
	for _, secret := range []string{srv.AccessKey(), string(msgpushtest.SampleRecords().MailChannels[0].Password)} {
		assert.NotContains(t, string(text), secret)
	}
	assert.Contains(t, string(text), "alert@example.com")

	require.Len(t, srv.Requests(), 1)
	srv.Close()
	t.Setenv("MSGPUSH_ACCESS_KEY", "")
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	out := runGo(t, append([]string{"test", "-v", "-count=1", "-run", "TestRecorded"}, files...)...)
	assert.Contains(t, out, "--- PASS: TestRecorded ")
}

// assertCodeRuns checks that each block of Go code of a document is formatted and compiles
// on its own, since a reader may copy only this block. It runs statements and programs with a fake
// server, and the tests of the document together. It returns the directory of the files.
func assertCodeRuns(t *testing.T, document string, replace ...*strings.Replacer) string {
	dir := t.TempDir()
	var commands [][]string
	var files, tests []string
	blocks := goBlock.FindAllStringSubmatch(read(t, document), -1)
	require.NotEmpty(t, blocks, document)
	for i, match := range blocks {
		source := match[1]
		assertFormatted(t, source)
		for _, r := range replace {
			source = r.Replace(source)
		}
		if !strings.HasPrefix(source, "package ") {
			if !newError.MatchString(source) {
				source += "var err error\n"
			}
			source = strings.Replace(program, "BLOCK", source, 1)
		}
		command, file := "vet", filepath.Join(dir, fmt.Sprintf("block%d.go", i+1))
		if test := testFunction.FindStringSubmatch(source); test != nil {
			file = filepath.Join(dir, fmt.Sprintf("block%d_test.go", i+1))
			files, tests = append(files, file), append(tests, test[1])
		} else if strings.HasPrefix(source, "package main\n") {
			command = "run"
		}
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		commands = append(commands, []string{command, file})
	}
	t.Run("blocks", func(t *testing.T) {
		for _, args := range commands {
			t.Run(filepath.Base(args[1]), func(t *testing.T) {
				t.Parallel() // most of the time, the go command links one program
				runGo(t, args...)
			})
		}
	})
	if len(tests) == 0 {
		return dir
	}
	out := runGo(t, append([]string{"test", "-v"}, files...)...)
	for _, name := range tests {
		assert.Contains(t, out, "--- PASS: "+name+" ", document)
	}
	return dir
}

// runGo runs the go command in this module, which requires msgpush and a database driver. It returns the
// output.
func runGo(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	assert.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
	return string(out)
}
