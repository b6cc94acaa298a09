package msgpush_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
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

func TestTheCodeOfTheREADMECompiles(t *testing.T) {
	const fragment = `package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

var (
	_ = errors.Is
	_ = fmt.Println
	_ url.Values
	_ msgpush.Option
	_ msgpushtest.Records
)

type keys struct{}

func (keys) Key(context.Context) (string, time.Time, error) { return "", time.Time{}, nil }

func main() { _ = readme }

func readme(ctx context.Context, client *msgpush.Client, vault keys, baseURL, mailID string) error {
	BLOCK
	return err
}
`
	blocks := codeBlocks(t)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		if strings.Contains(block, "promhttp") {
			continue // examples/observability compiles it
		}
		formatted, err := format.Source([]byte(block))
		require.NoError(t, err, block)
		assert.Equal(t, string(formatted), block, "gofmt")
		source := block
		if !strings.HasPrefix(block, "package ") {
			if strings.HasPrefix(block, "for ") {
				block += "var err error\n"
			}
			source = strings.Replace(fragment, "BLOCK", block, 1)
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "main.go")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		command := []string{"build", "-o", filepath.Join(dir, "program"), file}
		if strings.Contains(source, "testing.T") {
			file = filepath.Join(dir, "readme_test.go")
			require.NoError(t, os.Rename(filepath.Join(dir, "main.go"), file))
			command = []string{"test", file}
		}
		out, err := exec.Command("go", command...).CombinedOutput()
		assert.NoError(t, err, "%s\n%s", out, source)
	}
}

func TestTheREADMEHasEveryOperation(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, op := range msgpush.Operations() {
		if op.Name != "" {
			assert.Contains(t, string(readme), "| "+op.String()+" | `")
		}
	}
	client := reflect.TypeFor[*msgpush.Client]()
	for i := range client.NumMethod() {
		assert.Contains(t, string(readme), " | `"+client.Method(i).Name)
	}
}

func TestTheREADMEHasEveryExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples, err := os.ReadDir("examples")
	require.NoError(t, err)
	for _, example := range examples {
		assert.True(t, strings.Contains(string(readme), "| `"+example.Name()+"` | "), example.Name())
		assert.True(t, strings.Contains(string(readme), "examples/"+example.Name()), example.Name())
	}
}
