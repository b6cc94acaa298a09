package contract_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A checkout is a copy of the module, in which a test adds an operation.
type checkout struct {
	t   *testing.T
	dir string
}

// newCheckout copies the files that git does not ignore.
func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{t, t.TempDir()}
	files, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	require.NoError(t, err)
	for file := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
		body, err := os.ReadFile(filepath.Join("..", file))
		if os.IsNotExist(err) {
			continue // deleted, but not yet committed
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(c.dir, filepath.Dir(file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, file), body, 0o644))
	}
	return c
}

// run splits the command at spaces. It starts no shell, so a | needs no quotes.
func (c checkout) run(command string) (string, error) {
	args := strings.Fields(command)
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Dir = c.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c checkout) mustRun(command string) {
	c.t.Helper()
	out, err := c.run(command)
	require.NoError(c.t, err, "%s\n%s", command, out)
}

// generate runs the generators of the recipe. They may fail if a step of the recipe is
// missing; firstFailure then finds the error.
func (c checkout) generate() {
	_, _ = c.run("go -C contract generate ./...")
	_, _ = c.run("go test -run TestTheExportedAPI . -update")
}

// At least one of checks fails if a step of the recipe is missing.
var checks = []string{
	"go vet ./...",
	"go test -run Operation|API .",
	"go test -run Operation|Records ./msgpushtest",
	"go -C contract vet ./...",
	"go -C contract test -short -count=1 ./...",
}

// firstFailure returns the output of the first check that fails, or "".
func (c checkout) firstFailure() string {
	for _, check := range checks {
		if out, err := c.run(check); err != nil {
			return out
		}
	}
	return ""
}

// changedFile matches the line of a diff that names a file.
var changedFile = regexp.MustCompile(`(?m)^diff --git a/(\S+)`)

// CONTRIBUTING.md lists the files to change for another operation. The two diffs in
// testdata/recipes follow it. Without the change of any one file, a check fails, and its
// output names the file or, if the code does not compile, the missing name.
func TestRecipeForAnotherOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and tests copies of the module")
	}
	t.Parallel()
	contributing, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	_, recipe, found := strings.Cut(string(contributing), "## Adding an operation")
	require.True(t, found)
	recipe, _, _ = strings.Cut(recipe, "\n## ")
	compileErrors := map[string]string{ // by file
		"forwardrule.go":         "opForwardRuleDetail",
		"webhook.go":             "WebhookList",
		"msgpushtest/records.go": "Webhooks undefined",
	}
	for name, files := range map[string]int{"detail": 7, "list": 8} {
		t.Run(name, func(t *testing.T) {
			diff, err := filepath.Abs("../testdata/recipes/" + name + ".diff")
			require.NoError(t, err)
			text, err := os.ReadFile(diff)
			require.NoError(t, err)
			changed := changedFile.FindAllStringSubmatch(string(text), -1)
			assert.Len(t, changed, files, "an operation takes at most eight files, besides generated ones")

			c := newCheckout(t)
			c.mustRun("git apply -C1 " + diff)
			c.mustRun("gofmt -w .")
			c.generate()
			require.Empty(t, c.firstFailure())
			c.mustRun("go test -short ./...")
			for _, match := range changed {
				file := match[1]
				isResource := !strings.Contains(file, "/") && strings.HasSuffix(file, ".go") && file != "unimplemented.go"
				assert.True(t, isResource || strings.Contains(recipe, "| `"+file+"` |"), "CONTRIBUTING.md does not name %s", file)
				c.mustRun("git apply -C1 -R --include=" + file + " " + diff)
				c.generate()
				failure := c.firstFailure()
				assert.True(t, slices.ContainsFunc([]string{file, compileErrors[file]}, func(hint string) bool {
					return hint != "" && strings.Contains(failure, hint)
				}), "no check names %s, whose change is missing: %s", file, failure)
				c.mustRun("git apply -C1 --include=" + file + " " + diff)
			}
		})
	}
}
