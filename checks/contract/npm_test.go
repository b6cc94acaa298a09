package contract_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// npmProgram returns the path of a program in the directory npm. If it is not
// installed, npmProgram skips the test or, in CI, fails it.
func npmProgram(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts " + name)
	}
	path, err := filepath.Abs(filepath.Join("npm/node_modules/.bin", name))
	require.NoError(t, err)
	if _, err := os.Stat(path); err != nil {
		text := name + " is not installed: npm --prefix checks/contract/npm ci --ignore-scripts"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return path
}

// runProgram runs a program of the directory npm and returns its output.
func runProgram(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), npmProgram(t, name), args...).CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// startPrism runs Prism until the test ends, and returns its URL.
func startPrism(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, npmProgram(t, "prism"), append(args, "--port", "0")...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	urls, ended := make(chan string, 1), make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			log.WriteString(lines.Text() + "\n")
			if _, address, ok := strings.Cut(lines.Text(), "Prism is listening on "); ok {
				urls <- address
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Log(log.String())
		}
	})
	select {
	case address := <-urls:
		return address
	case <-ended:
		require.Fail(t, "Prism ended", log.String())
		return ""
	}
}

// newPrismClient returns a client of Prism that adds header to each request, the HTTP client
// that it uses, and a function that returns the violations that Prism has reported.
func newPrismClient(t *testing.T, prismURL, key string, header http.Header) (*msgpush.Client, *http.Client, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var violations []string
	httpClient := &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		maps.Copy(r.Header, header)
		response, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			violations = append(violations, response.Header.Values("Sl-Violations")...)
		}
		return response, err
	})}
	client, err := msgpush.NewClient(prismURL, key, msgpush.WithHTTPClient(httpClient), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	require.NoError(t, err)
	return client, httpClient, func() []string { return violations }
}

// Prism responds with the first example of openapi.json, in which a list has one page.
func TestClientReadsPrism(t *testing.T) {
	t.Parallel()
	prism := startPrism(t, "mock", "--errors", "../../openapi.json")
	for _, op := range operations(load(t)) {
		t.Run(op.OperationID, func(t *testing.T) {
			client, _, violations := newPrismClient(t, prism, "test-key", nil)
			call := op.call(t)
			want := firstExample(op).(map[string]any)["data"]
			data, err := call.Do(t.Context(), client)
			require.NoError(t, err)
			assert.JSONEq(t, string(encode(t, want)), string(encode(t, plain(t, reflect.ValueOf(data)))))
			if call.Pages != nil {
				for _, prefetch := range []int{0, 4} {
					pages, err := drain(call.Pages(t.Context(), client, msgpush.PageRequest{PageSize: 2}, msgpush.Prefetch(prefetch)))
					require.NoError(t, err)
					assert.Equal(t, 1, pages)
				}
			}
			failing, _, _ := newPrismClient(t, prism, "test-key", http.Header{"Prefer": {"example=error"}})
			_, err = call.Do(t.Context(), failing)
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, msgpushtest.CodeAccessKey, apiErr.Code)
			assert.Empty(t, violations())
		})
	}
}

// Prism forwards the requests to the fake server, and reports requests and responses
// that violate openapi.json.
func TestPrismFindsNoViolations(t *testing.T) {
	t.Parallel()
	server := msgpushtest.New(t)
	server.SetRecords(msgpushtest.SampleRecords())
	prism := startPrism(t, "proxy", "--errors", "../../openapi.json", server.URL)
	client, httpClient, violations := newPrismClient(t, prism, server.AccessKey(), nil)
	for _, op := range operations(load(t)) {
		call := op.call(t)
		_, err := call.Do(t.Context(), client)
		require.NoError(t, err, op.OperationID)
		if call.Pages != nil {
			for _, prefetch := range []int{0, 4} {
				_, err := drain(call.Pages(t.Context(), client, msgpush.PageRequest{PageSize: 2}, msgpush.Prefetch(prefetch)))
				require.NoError(t, err, op.OperationID)
			}
		}
	}
	_, err := drain(client.ForwardLogAll(t.Context(), msgpush.ForwardLogRequest{
		Params: msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)},
	}))
	require.NoError(t, err)
	for _, tt := range rejectedRequests {
		if tt.isValid {
			assert.Equal(t, tt.code, tt.send(t, prism, server.AccessKey(), httpClient.Transport).Code, tt.name)
		}
	}
	server.SetRateLimit(1, time.Hour)
	for range 2 {
		_, err = client.MPList(t.Context(), msgpush.PageRequest{})
	}
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, msgpushtest.CodeRateLimit, apiErr.Code)
	assert.Empty(t, violations())
}

// Even with --validate-request=false, Prism rejects some invalid requests itself, and changes
// others. It checks the responses to the requests that it forwards.
func TestPrismFindsNoViolationsInResponsesToInvalidRequests(t *testing.T) {
	t.Parallel()
	server := msgpushtest.New(t)
	prism := startPrism(t, "proxy", "--errors", "--validate-request=false", "../../openapi.json", server.URL)
	_, httpClient, violations := newPrismClient(t, prism, server.AccessKey(), nil)
	codes := map[int]bool{}
	for _, tt := range rejectedRequests {
		before := len(server.Requests())
		envelope := tt.send(t, prism, server.AccessKey(), httpClient.Transport)
		if len(server.Requests()) > before {
			assert.NotZero(t, envelope.Code, tt.name)
			codes[envelope.Code] = true
		}
	}
	assert.Contains(t, codes, msgpushtest.CodeContentType)
	assert.Empty(t, violations())
}

// The types that openapi-typescript generates can be constructed and read with all
// fields, and have no other fields.
func TestTypeScriptTypesAreUsable(t *testing.T) {
	t.Parallel()
	doc := load(t)
	types := map[string]*openapi3.Schema{}
	for name, schema := range doc.Components.Schemas {
		types[fmt.Sprintf("components[%q][%q]", "schemas", name)] = schema.Value
	}
	for _, op := range operations(doc) {
		types[fmt.Sprintf("paths[%q][%q][%q][200][%q][%q]", op.path, strings.ToLower(op.method), "responses", "content", "application/json")] =
			op.Responses.Status(http.StatusOK).Value.Content["application/json"].Schema.Value
	}
	var program strings.Builder
	program.WriteString("import type { components, paths } from './openapi';\n")
	for _, name := range slices.Sorted(maps.Keys(types)) {
		fmt.Fprintf(&program, "{\nconst v: %s = %s;\n%s", name, typeScriptValue(types[name]), typeScriptReads("v", types[name]))
		fmt.Fprintf(&program, "// @ts-expect-error: there is no such field\nconst w: %s = { ...v, unknownField: 1 };\n}\n", name)
	}
	const config = `{
		"compilerOptions": {
			"strict": true, "exactOptionalPropertyTypes": true, "noUncheckedIndexedAccess": true,
			"noEmit": true, "target": "es2022", "types": []
		},
		"files": ["program.ts"]
	}`
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(config), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "program.ts"), []byte(program.String()), 0o600))
	runProgram(t, "openapi-typescript", "../../openapi.json", "--output", filepath.Join(dir, "openapi.d.ts"))
	runProgram(t, "tsc", "--project", dir)
}

// typeScriptValue returns a value of a schema with all fields.
func typeScriptValue(schema *openapi3.Schema) string {
	switch {
	case schema.Type.Is("integer"):
		return "1"
	case schema.Type.Is("string"):
		return "'text'"
	case schema.Type.Is("array"):
		return "[" + typeScriptValue(schema.Items.Value) + "]"
	case schema.Properties == nil:
		return "{ anything: 'text' }"
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		fields = append(fields, name+": "+typeScriptValue(schema.Properties[name].Value))
	}
	return "{ " + strings.Join(fields, ", ") + " }"
}

// typeScriptReads returns statements that read all fields of an expression.
func typeScriptReads(expression string, schema *openapi3.Schema) string {
	switch {
	case schema.Type.Is("integer"):
		return "((_: number | undefined) => {})(" + expression + ");\n"
	case schema.Type.Is("string"):
		return "((_: string | undefined) => {})(" + expression + ");\n"
	case schema.Type.Is("array"):
		return expression + "?.forEach((element) => {\n" + typeScriptReads("element", schema.Items.Value) + "});\n"
	case schema.Properties == nil:
		return "((_: unknown) => {})(" + expression + "?.['anything']);\n"
	}
	var reads strings.Builder
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		reads.WriteString(typeScriptReads(expression+"?."+name, schema.Properties[name].Value))
	}
	return reads.String()
}

// The collection is made with the command of README.md.
func TestPostmanCollectionCallsTheFakeServer(t *testing.T) {
	t.Parallel()
	server := msgpushtest.New(t)
	server.SetRecords(msgpushtest.SampleRecords())
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	v := newValidator(load(t), http.DefaultTransport)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: v})
	defer proxy.Close()

	file := filepath.Join(t.TempDir(), "collection.json")
	runProgram(t, "openapi2postmanv2", "-s", "../../openapi.json", "-o", file, "-O", "parametersResolution=Example")
	runProgram(t, "newman", "run", file, "--env-var", "base_url="+proxy.URL, "--env-var", "apiKey="+server.AccessKey())
	all, _ := v.result()
	assert.Empty(t, all)
	assert.Equal(t, map[float64]int{200: len(operations(load(t)))}, v.codes)
}
