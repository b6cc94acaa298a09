package msgpush_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// codeBlocks returns the Go code blocks of the README.
func codeBlocks(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var blocks []string
	for _, part := range strings.Split(string(readme), "```go\n")[1:] {
		block, _, closed := strings.Cut(part, "```\n")
		require.True(t, closed)
		blocks = append(blocks, block)
	}
	return blocks
}

// Every block runs with the fake server, as a program or as a test.
func TestREADMECodeRuns(t *testing.T) {
	const fragment = `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

var (
	_ = errors.Is
	_ = fmt.Println
	_ time.Duration
)

type keys struct{ key string }

func (k keys) Key(context.Context) (string, time.Time, error) { return k.key, time.Time{}, nil }

func main() {
	srv := msgpushtest.NewServer()
	defer srv.Close()
	srv.SetRecords(msgpushtest.SampleRecords())
	if err := readme(context.Background(), srv.Client(), keys{srv.AccessKey()}, srv.URL, srv.AccessKey(), msgpushtest.SampleMailID); err != nil {
		var apiErr *msgpush.APIError
		if !errors.As(err, &apiErr) || apiErr.Code != msgpushtest.CodeNotFound { // the fake server has no such operation
			log.Fatal(err)
		}
	}
}

func readme(ctx context.Context, client *msgpush.Client, vault keys, baseURL, accessKey, mailID string) error {
	BLOCK
	_ = client
	return err
}
`
	blocks := codeBlocks(t)
	require.NotEmpty(t, blocks)
	for i, block := range blocks {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			formatted, err := format.Source([]byte(block))
			require.NoError(t, err, block)
			assert.Equal(t, string(formatted), block, "gofmt")
			source := block
			if !strings.HasPrefix(block, "package ") {
				if !strings.Contains(block, ", err := msgpush.") && !strings.Contains(block, ", err := client.") {
					source += "var err error\n"
				}
				source = strings.Replace(fragment, "BLOCK", source, 1)
			}
			file, command := "main.go", "run"
			if strings.Contains(source, "testing.T") {
				file, command = "readme_test.go", "test"
			}
			file = filepath.Join(t.TempDir(), file)
			require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
			out, err := exec.CommandContext(t.Context(), "go", command, file).CombinedOutput()
			assert.NoError(t, err, "%s\n%s", out, source)
		})
	}
}

func TestREADMENamesEverySpecifiedOperation(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			assert.True(t, strings.Contains(string(readme), "| "+op.String()+" | `"), "README.md has no line for the %v", op)
		}
	}
}

func TestREADMEIsShort(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(readme), "\n"), 220)
}

func TestREADMENamesEveryExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples, err := os.ReadDir("examples")
	require.NoError(t, err)
	for _, example := range examples {
		if example.Name() == "internal" {
			continue
		}
		assert.True(t, strings.Contains(string(readme), "| `"+example.Name()+"` | "), "README.md has no line for %s", example.Name())
		assert.True(t, strings.Contains(string(readme), "examples/"+example.Name()), "README.md has no command for %s", example.Name())
	}
}

func TestREADMENamesTheLicenceOfEveryDependency(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	for line := range strings.Lines(string(mod)) {
		if module, _, found := strings.Cut(strings.TrimSpace(line), " v"); found {
			assert.True(t, strings.Contains(string(readme), "`"+module+"`"), "README.md has no licence of %s", module)
		}
	}
}

func TestChangelogNamesTheVersion(t *testing.T) {
	changelog, err := os.ReadFile("CHANGELOG.md")
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(changelog), "\n## "+msgpush.Version+" "), "CHANGELOG.md has nothing about version %s", msgpush.Version)
}
