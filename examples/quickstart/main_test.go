package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func Example() {
	main()
	// Output:
	// 301 严重告警转值班 title contains "严重"
	// 302 CPU > 90 % content matches "cpu=9[0-9]"
	// 303 大额订单 amount >= 10000 && currency == "CNY"
	// 304 验证码 content contains "验证码"
	// 305 退款 (旧) type == "refund"
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// readmeBlock returns the block of README.md in a language that contains a text.
func readmeBlock(t *testing.T, language, text string) string {
	t.Helper()
	blocks := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(read(t, "../../README.md"), -1)
	for _, block := range blocks {
		if strings.Contains(block[1], text) {
			return block[1]
		}
	}
	require.Fail(t, "README.md has no such block", "%s with %q", language, text)
	return ""
}

func TestREADMEShowsThisProgram(t *testing.T) {
	_, program, _ := strings.Cut(read(t, "main.go"), "package main\n") // after the package comment
	assert.Equal(t, "package main\n"+program, readmeBlock(t, "go", "func printRules("))
}

// README.md shows the line that changes for a real service as a diff without context.
func TestProgramForARealServiceCompiles(t *testing.T) {
	program := read(t, "main.go")
	changes := regexp.MustCompile(`(?m)^-(.*\n)\+(.*\n)`)
	lines := changes.FindAllStringSubmatch(readmeBlock(t, "diff", "msgpush.NewClient("), -1)
	assert.Len(t, lines, 1)
	for _, line := range lines {
		removed, added := line[1], line[2]
		require.Equal(t, 1, strings.Count(program, removed), "occurrences of %q", removed)
		program = strings.Replace(program, removed, added, 1)
	}
	assertCompiles(t, program)

	// Without the fake server.
	fake := regexp.MustCompile(`(?m)^.*(srv|msgpushtest).*\n`)
	assertCompiles(t, fake.ReplaceAllString(program, ""))
}

func assertCompiles(t *testing.T, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	output, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
	assert.NoError(t, err, "%s", output)
}
