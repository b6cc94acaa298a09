package msgpush_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

var updateAPI = flag.Bool("update", false, "record the exported API in testdata/api.txt")

// A change of the exported API must be recorded in testdata/api.txt, so that it is
// intended and a reviewer sees it. To record a change:
//
//	go test -run TestTheExportedAPI . -update
func TestTheExportedAPIIsRecorded(t *testing.T) {
	const file = "testdata/api.txt"
	got := exportedAPI(t, ".") + "\n" + exportedAPI(t, "msgpushtest") + "\n" + exportedAPI(t, "fleet")
	if *updateAPI {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "if the change is intended, record it with -update and describe it in CHANGELOG.md")
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, dir := range []string{".", "msgpushtest", "fleet"} {
		_, p := parsePackage(t, dir)
		require.NotEmpty(t, p.Doc)
		values := func(values []*doc.Value) {
			for _, v := range values {
				documented := v.Doc != ""
				for _, spec := range v.Decl.Specs {
					assert.True(t, documented || spec.(*ast.ValueSpec).Doc != nil, "%s: %v", dir, v.Names)
				}
			}
		}
		funcs := func(funcs []*doc.Func) {
			for _, f := range funcs {
				assert.NotEmpty(t, f.Doc, "%s: %s", dir, f.Name)
			}
		}
		values(p.Consts)
		values(p.Vars)
		funcs(p.Funcs)
		for _, typ := range p.Types {
			assert.NotEmpty(t, typ.Doc, "%s: %s", dir, typ.Name)
			values(typ.Consts)
			values(typ.Vars)
			funcs(typ.Funcs)
			funcs(typ.Methods)
		}
	}
}

// parsePackage returns the exported documentation of the package in a directory.
func parsePackage(t *testing.T, dir string) (*token.FileSet, *doc.Package) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "example.com/msgpush/"+dir)
	require.NoError(t, err)
	return fset, p
}

// exportedAPI returns the exported declarations of a package, without comments.
func exportedAPI(t *testing.T, dir string) string {
	t.Helper()
	fset, p := parsePackage(t, dir)
	var b bytes.Buffer
	write := func(decl ast.Decl) {
		require.NoError(t, printer.Fprint(&b, fset, withoutComments(decl)))
		b.WriteString("\n")
	}
	values := func(values []*doc.Value) {
		for _, v := range values {
			write(v.Decl)
		}
	}
	funcs := func(funcs []*doc.Func) {
		for _, f := range funcs {
			write(f.Decl)
		}
	}
	b.WriteString("package " + p.Name + "\n\n")
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		b.WriteString("\n")
		write(typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	return b.String()
}

// withoutComments removes the comments and the body of a declaration and returns
// the declaration.
func withoutComments(decl ast.Decl) ast.Decl {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			n.Doc = nil
		case *ast.FuncDecl:
			n.Doc, n.Body = nil, nil
		case *ast.TypeSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.ValueSpec:
			n.Doc, n.Comment = nil, nil
		case *ast.Field:
			n.Doc, n.Comment = nil, nil
		}
		return true
	})
	return decl
}

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
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // code that follows a list does not end
	defer cancel()
	if err := readme(ctx, srv.Client(), keys{srv.AccessKey()}, srv.URL, srv.AccessKey(), msgpushtest.SampleMailID); err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
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

// A row of the README's table of operations, such as
// | message rule list | `ForwardRuleList(ctx, PageRequest)` | `ForwardRuleAll`, `ForwardRulePages` |
var operationRow = regexp.MustCompile("(?m)^\\| (.+?) \\| `(\\w+)\\(ctx.*?\\)` \\|.*\\|$")

func TestREADMEAndChangelogNameEverySpecifiedOperation(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	changelog, err := os.ReadFile("CHANGELOG.md")
	require.NoError(t, err)
	rows := map[string][]string{}
	for _, row := range operationRow.FindAllStringSubmatch(string(readme), -1) {
		rows[row[1]] = row
	}
	client := reflect.TypeFor[*msgpush.Client]()
	for _, op := range msgpush.Operations() {
		if !op.Specified() {
			continue
		}
		row := rows[op.String()]
		if !assert.NotNil(t, row, "README.md: add a row for the %v to the table of operations", op) {
			continue
		}
		_, ok := client.MethodByName(row[2])
		assert.True(t, ok, "README.md: Client has no method %s", row[2])
		assert.True(t, strings.Contains(string(changelog), "`"+row[2]+"`"), "CHANGELOG.md: add the method %s", row[2])
	}
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
