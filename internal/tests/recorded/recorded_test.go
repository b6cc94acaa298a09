// Package recorded_test compares testdata/api.txt and openapi.json with the code, from which most of them
// follows. To write them:
//
//	go test ./internal/tests/recorded -update
package recorded_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what is recorded")

const command = "run go test ./internal/tests/recorded -update"

// A recordedFile is a file of the repository that follows from the code.
type recordedFile string

const (
	apiFile     recordedFile = "testdata/api.txt"
	openAPIFile recordedFile = "openapi.json"
)

func (f recordedFile) read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + string(f))
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// compare fails at the first line of the file that differs from want. With -update, it writes want.
func (f recordedFile) compare(t *testing.T, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile("../../../"+string(f), []byte(want), 0o644))
		return
	}
	got, wanted := strings.Split(f.read(t), "\n"), strings.Split(want, "\n")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("%s:%d is %s, but follows from the code as %s: if the code is right, %s",
				f, i+1, lineAt(got, i), lineAt(wanted, i), command)
		}
	}
}

func lineAt(lines []string, i int) string {
	if i >= len(lines) {
		return "missing"
	}
	return "\"" + strings.TrimSpace(lines[i]) + "\""
}
