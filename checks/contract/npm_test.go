package contract_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
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
	// Otherwise, a response that breaks off could end Prism.
	cmd.Env = append(os.Environ(), "NODE_OPTIONS=--unhandled-rejections=warn")
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
func newPrismClient(
	t *testing.T,
	prismURL, key string,
	header http.Header,
	opts ...msgpush.Option,
) (*msgpush.Client, *http.Client, func() []string) {
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
	opts = append(opts, msgpush.WithHTTPClient(httpClient), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	client, err := msgpush.NewClient(prismURL, key, opts...)
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
			data, err := call.Do(t.Context(), client)
			require.NoError(t, err)
			assertData(t, firstExample(op), data)
			if call.Pages != nil {
				for _, prefetch := range []int{0, 4} {
					pages, err := drain(call.Pages(t.Context(), client, 2, prefetch))
					require.NoError(t, err)
					assert.Equal(t, 1, pages)
				}
			}
			failing, _, _ := newPrismClient(t, prism, "test-key", http.Header{"Prefer": {"example=" + rejectedKey}})
			_, err = call.Do(t.Context(), failing)
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, msgpushtest.CodeAccessKey, apiErr.Code)
			assert.Empty(t, violations())
		})
	}
}

// Prism makes responses with random values of the types in openapi.json.
func TestPrismGeneratesIntegerCodes(t *testing.T) {
	t.Parallel()
	prism := startPrism(t, "mock", "--dynamic", "--errors", "../../openapi.json")
	base, err := url.Parse(prism)
	require.NoError(t, err)
	for _, op := range operations(load(t)) {
		var body []byte
		if op.RequestBody != nil {
			body = exampleRequest(t, op)
		}
		for range 50 {
			r := op.request(t, body)
			r.URL.Scheme, r.URL.Host = base.Scheme, base.Host
			text := bodyOf(t, r, http.DefaultTransport)
			var envelope struct{ Code int }
			require.NoError(t, json.Unmarshal(text, &envelope), "%s: %s", op.OperationID, text)
		}
	}
}

// Prism forwards the requests to the program fakeserver, and reports requests and responses
// that violate openapi.json.
func TestPrismFindsNoViolations(t *testing.T) {
	t.Parallel()
	npmProgram(t, "prism")
	url, key := startFakeServer(t)
	prism := startPrism(t, "proxy", "--errors", "../../openapi.json", url)
	client, httpClient, violations := newPrismClient(t, prism, key, nil)
	for _, op := range operations(load(t)) {
		call := op.call(t)
		_, err := call.Do(t.Context(), client)
		require.NoError(t, err, op.OperationID)
		if call.Pages != nil {
			for _, prefetch := range []int{0, 4} {
				_, err := drain(call.Pages(t.Context(), client, 2, prefetch))
				require.NoError(t, err, op.OperationID)
			}
		}
	}
	_, err := drain(
		client.ForwardLogs(msgpush.ForwardLogParams{RuleID: new(int64(301)), MatchResult: new(0)}).All(t.Context()))
	require.NoError(t, err)
	for _, tt := range rejectedRequests {
		if tt.isValid {
			assert.Equal(t, tt.code, tt.send(t, prism, key, httpClient.Transport).Code, tt.name)
		}
	}
	assert.Empty(t, violations())
}

// A fault affects one response: Prism forwards the next one. It does not respond if the
// response of the server breaks off. Endless is left out, since Prism stores the response.
func TestPrismForwardsFaults(t *testing.T) {
	t.Parallel()
	type test struct {
		name    string
		fault   msgpushtest.Fault
		isValid bool   // the response matches openapi.json
		want    string // a regular expression for the error
	}
	// By the time at which the connection breaks, Prism responds with HTTP 500, or never.
	const brokenBody = "HTTP 500|no complete response within 1s"
	tests := []test{
		{"none", msgpushtest.Fault{}, true, ""},
		{"delay", msgpushtest.Delay(time.Millisecond), true, ""},
		{"rejected key", msgpushtest.RejectKey(), true, "HTTP 200, code 401"},
		{"status with an envelope",
			msgpushtest.ErrorResponse(7, "busy", nil).WithStatus(503), true, "HTTP 503 Service Unavailable, code 7: busy"},
		{"status", msgpushtest.Status(503), false, "HTTP 500"},
		{"HTML", msgpushtest.HTML(), false, "HTTP 500"},
		{"garbage", msgpushtest.Garbage(), true, "HTTP 500"}, // Prism fails before it checks the response
		{"redirect", msgpushtest.Redirect("/x"), true, "HTTP 500"},
		{"reset", msgpushtest.Reset(), true, "HTTP 500"},
		{"reset in the body", msgpushtest.ResetInBody(), true, brokenBody},
		{"truncated", msgpushtest.Truncate(), true, brokenBody},
	}
	for name, body := range failures {
		tests = append(tests, test{"failure, " + name, msgpushtest.Respond(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}), true, "HTTP 200, code 500: x"})
	}
	server := msgpushtest.New(t)
	server.SetRecords(msgpushtest.SampleRecords())
	prism := startPrism(t, "proxy", "--errors", "../../openapi.json", server.URL)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client, _, violations := newPrismClient(t, prism, server.AccessKey(), nil, msgpush.WithTimeout(time.Second))
			server.Inject(tt.fault.Always())
			_, err := client.MailDetail(t.Context(), msgpushtest.SampleMailID)
			if tt.want == "" {
				assert.NoError(t, err)
			} else if assert.Error(t, err) {
				assert.Regexp(t, tt.want, err.Error())
			}
			assert.Equal(t, tt.isValid, len(violations()) == 0, violations())
			server.ClearFaults()
			next, _, violations := newPrismClient(t, prism, server.AccessKey(), nil)
			_, err = next.MPList(t.Context(), msgpush.PageRequest{})
			assert.NoError(t, err)
			assert.Empty(t, violations())
		})
	}
	t.Run("rate limit", func(t *testing.T) {
		client, _, violations := newPrismClient(t, prism, server.AccessKey(), nil)
		server.SetRateLimit(1, time.Hour)
		defer server.SetRateLimit(0, 0)
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
		_, err = client.MPList(t.Context(), msgpush.PageRequest{})
		assert.ErrorContains(t, err, "HTTP 429")
		assert.Empty(t, violations())
	})
}

// These programs make a server reject its own response, with HTTP 500, if the response
// violates openapi.json.
func TestValidatorsOfOtherServersAcceptFailuresWithAnyData(t *testing.T) {
	t.Parallel()
	npmProgram(t, "prism") // the programs are installed together
	type response struct {
		OperationID string          `json:"operationId"`
		Method      string          `json:"method"`
		Path        string          `json:"path"`
		Body        json.RawMessage `json:"body"`
	}
	var responses []response
	var names []string
	var isValid []bool
	for _, op := range operations(load(t)) {
		add := func(name string, body []byte, valid bool) {
			responses = append(responses, response{op.OperationID, op.method, op.request(t, nil).URL.RequestURI(), body})
			names, isValid = append(names, op.OperationID+", "+name), append(isValid, valid)
		}
		for name, body := range failures {
			add("failure with "+name, []byte(body), true)
		}
		add("success", encode(t, firstExample(op).Value.Value), true)
		add("code that is a string", []byte(`{"code":"200","msg":"x"}`), false)
	}
	cmd := exec.CommandContext(t.Context(), "node", "npm/responses.cjs", "../../openapi.json")
	cmd.Stdin = bytes.NewReader(encode(t, responses))
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var results []struct{ Express, Backend *string } // the reason for rejecting the response
	require.NoError(t, json.Unmarshal(out, &results))
	require.Len(t, results, len(responses))
	for i, result := range results {
		assert.Equal(t, isValid[i], result.Express == nil, "express-openapi-validator: %s", names[i])
		assert.Equal(t, isValid[i], result.Backend == nil, "openapi-backend: %s", names[i])
	}
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

func TestRedoclyFindsNoErrors(t *testing.T) {
	t.Setenv("REDOCLY_TELEMETRY", "off")
	t.Setenv("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")
	runProgram(t, "redocly", "lint", "../../openapi.json")
}

// The types that openapi-typescript generates can be constructed and read with all
// fields, and have no other fields.
func TestTypeScriptTypesAreUsable(t *testing.T) {
	t.Parallel()
	doc := load(t)
	types := map[string]*openapi3.Schema{}
	for name, schema := range doc.Components.Schemas {
		if name == "AnyValue" {
			continue // it has any field
		}
		types[fmt.Sprintf("components[%q][%q]", "schemas", name)] = schema.Value
	}
	var program strings.Builder
	program.WriteString("import type { components, paths } from './openapi';\n")
	for _, op := range operations(doc) {
		name := fmt.Sprintf("paths[%q][%q][%q][200][%q][%q]", op.path, strings.ToLower(op.method), "responses", "content",
			"application/json")
		types[name] = op.content().Schema.Value
		fmt.Fprintf(&program, "{\nconst v: %s = %s;\n((_: number | undefined) => {})(v.code);\n}\n", name,
			failures["no data"])
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		fmt.Fprintf(&program, "{\nconst v: %s = %s;\n%s", name, typeScriptValue(types[name]),
			typeScriptReads("v", types[name]))
		fmt.Fprintf(&program, "// @ts-expect-error: there is no such field\nconst w: %s = { ...v, unknownField: 1 };\n}\n",
			name)
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
	case schema.AnyOf != nil:
		return typeScriptValue(schema.AnyOf[0].Value)
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
	case schema.AnyOf != nil && schema.AnyOf[0].Ref == "": // any value
		return "((_: unknown) => {})(" + expression + ");\n"
	case schema.AnyOf != nil:
		// A function, since an assignment would narrow the type. No cast is needed.
		success := fmt.Sprintf("components[%q][%q]", "schemas", path.Base(schema.AnyOf[0].Ref))
		failure := fmt.Sprintf("components[%q][%q]", "schemas", path.Base(schema.AnyOf[1].Ref))
		return fmt.Sprintf(
			"((m: %s | %s) => {\nif ('data' in m) {\n%s} else {\n((_: number) => {})(m.code ?? 0);\n}\n})(%s);\n", success,
			failure, typeScriptReads("m", schema.AnyOf[0].Value), expression)
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
func TestPostmanCollectionCallsFakeserver(t *testing.T) {
	t.Parallel()
	npmProgram(t, "newman")
	base, key := startFakeServer(t)
	target, err := url.Parse(base)
	require.NoError(t, err)
	v := newValidator(load(t), http.DefaultTransport)
	proxy := httptest.NewServer(
		&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: v})
	defer proxy.Close()

	file := filepath.Join(t.TempDir(), "collection.json")
	runProgram(t, "openapi2postmanv2", "-s", "../../openapi.json", "-o", file, "-O", "parametersResolution=Example")
	runProgram(t, "newman", "run", file, "--env-var", "base_url="+proxy.URL, "--env-var", "apiKey="+key)
	all, _ := v.result()
	assert.Empty(t, all)
	assert.Equal(t, map[float64]int{200: len(operations(load(t)))}, v.codes)
}
