package contract_test

import (
	"cmp"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var apply = flag.String("apply", "", "apply a recipe, such as list, to this repository")

// readFile returns "" if there is no such file.
func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(content)
}

// writeFile removes the file if content is "".
func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if content == "" {
		require.NoError(t, os.Remove(name))
		return
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
}

// editFiles returns the files that a recipe edits, by name, with their new contents.
func editFiles(t *testing.T, recipe string) map[string]string {
	t.Helper()
	files := map[string]string{}
	text := readFile(t, "../../testdata/recipes/"+recipe+".txt")
	for _, edit := range strings.Split(text, "\n-- ")[1:] {
		header, text, _ := strings.Cut(edit, "\n")
		file, place, _ := strings.Cut(strings.TrimSuffix(header, " --"), ": ")
		if _, ok := files[file]; !ok {
			files[file] = readFile(t, "../../"+file)
		}
		edited, found := applyEdit(files[file], place, strings.Trim(text, "\n")+"\n")
		require.True(t, found, "%s.txt: found no place for the edit -- %s", recipe, header)
		files[file] = edited
	}
	return files
}

// applyEdit returns the content of a file with an edit at a place such as "after var All =",
// and whether it found the place.
func applyEdit(content, place, text string) (string, bool) {
	if place == "" {
		return strings.TrimPrefix(content+"\n"+text, "\n"), true
	}
	verb, anchor, _ := strings.Cut(place, " ")
	lines := strings.SplitAfter(content, "\n")
	i := slices.IndexFunc(lines, func(line string) bool {
		return strings.Contains(strings.Join(strings.Fields(line), " "), anchor)
	})
	switch {
	case i < 0:
		return "", false
	case verb == "before":
		lines = slices.Insert(lines, i, text)
	case verb == "after":
		lines = slices.Insert(lines, i+1, text)
	case verb == "delete":
		end := i + 1
		for i > 0 && strings.HasPrefix(lines[i-1], "//") {
			i--
		}
		lines = slices.Delete(lines, i, end)
	default:
		return "", false
	}
	return strings.Join(lines, ""), true
}

// copyRepository copies the files that git does not ignore to a new directory.
func copyRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	names, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if content := readFile(t, filepath.Join("../..", name)); content != "" {
			writeFile(t, filepath.Join(dir, name), content)
		}
	}
	return dir
}

// run splits the command at spaces. It starts no shell, so a | needs no quotes.
func run(t *testing.T, dir, command string) (string, error) {
	t.Helper()
	args := strings.Fields(command)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const documentsCheck = "go -C checks test -run READMEAndChangelog ./documents"

// checks holds a fast check that fails without the change of a file. Without the change of
// any other file, a package does not compile.
var checks = map[string]string{
	"openapi.json":             "go test -vet=off -run Operation .",
	"internal/calls/calls.go":  "go test -vet=off -run Operation ./msgpushtest",
	"msgpushtest/operation.go": "go test -vet=off -run Operation ./msgpushtest",
	"README.md":                documentsCheck,
	"CHANGELOG.md":             documentsCheck,
}

// CONTRIBUTING.md lists the files to change for another operation. The recipes follow it.
// Without the change of any one file, a check fails. Its output names the file or, if a
// package does not compile, a name of the missing change.
func TestRecipeForAnotherOperation(t *testing.T) {
	if *apply != "" {
		for file, content := range editFiles(t, *apply) {
			writeFile(t, "../../"+file, content)
		}
		return
	}
	if testing.Short() {
		t.Skip("builds and tests copies of the module")
	}
	t.Parallel()
	_, steps, found := strings.Cut(readFile(t, "../../CONTRIBUTING.md"), "## Adding an operation")
	require.True(t, found)
	steps, _, _ = strings.Cut(steps, "\n## ")
	recipes, err := filepath.Glob("../../testdata/recipes/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, recipes)
	for _, recipe := range recipes {
		name := strings.TrimSuffix(filepath.Base(recipe), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := editFiles(t, name)
			assert.LessOrEqual(t, len(files), 8, "an operation takes at most eight files, besides generated ones")
			dir := copyRepository(t)
			for file, content := range files {
				writeFile(t, filepath.Join(dir, file), content)
			}
			for _, command := range []string{
				"gofmt -w .",
				"go -C checks generate ./contract",
				"go test -run TestTheExportedAPI . -update",
				"go test -short -skip TakesLinearTime ./...", // that test is slow, and depends on no operation
				"go -C checks test -short ./contract",
			} {
				out, err := run(t, dir, command)
				require.NoError(t, err, "%s\n%s", command, out)
			}
			for file := range files {
				original, changed := readFile(t, "../../"+file), readFile(t, filepath.Join(dir, file))
				assert.True(t, original == "" || strings.Contains(steps, "`"+file+"`"), "CONTRIBUTING.md does not name %s", file)
				writeFile(t, filepath.Join(dir, file), original)
				out, err := run(t, dir, cmp.Or(checks[file], "go build ./..."))
				isNamed := strings.Contains(out, file) || strings.Contains(out, "undefined") // the compiler names the missing declaration
				assert.True(t, err != nil && isNamed, "no check names %s, whose change is missing: %s", file, out)
				writeFile(t, filepath.Join(dir, file), changed)
			}
		})
	}
}
