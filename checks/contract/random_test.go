package contract_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/msgpushtest"
)

var (
	requestCount = flag.Int("requests", 15_000, "number of random requests to the fake server")
	requestSeed  = flag.Uint64("seed", 1, "seed of the random requests")
)

// The fake server must respond to every random request, and as openapi.json describes.
func TestRandomRequestsMatchOpenAPI(t *testing.T) {
	t.Parallel()
	n := *requestCount
	if testing.Short() {
		n /= 10
	}
	server := msgpushtest.NewServer()
	defer server.Close()
	g := newGenerator(load(t), *requestSeed, server.AccessKey())
	codes := map[float64]int{}
	for i := range n {
		if i%100 == 0 { // operations that write must not make the lists long
			server.SetRecords(msgpushtest.SampleRecords())
		}
		isValid := i%2 == 0
		draft := g.draft(!isValid)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a hang is an error
		what := fmt.Sprintf("request %d, -seed %d: %v", i, *requestSeed, draft)
		v := newValidator(g.doc, server.HTTPClient().Transport)
		if draft.isCutOff {
			v.next = roundTripFunc(cutOff)
		}
		response, err := v.RoundTrip(draft.request(t, server.URL).WithContext(ctx))
		require.NoError(t, err, what)
		body := readAll(t, response)
		cancel()
		server.ClearRequests() // to save memory
		all := v.result()
		if !isValid {
			all = responseViolations(v)
		}
		require.Empty(t, all, "%s\n%s", what, body)
		require.Less(t, response.StatusCode, 500, what)
		for code := range v.codes {
			codes[code]++
		}
	}
	t.Log("responses by code:", codes)
	for _, code := range []float64{
		200,
		msgpushtest.CodeBadRequest,
		msgpushtest.CodeAccessKey,
		msgpushtest.CodeNotFound,
		msgpushtest.CodeMethodNotAllowed,
		msgpushtest.CodeContentType,
	} {
		assert.Greater(t, codes[code], n/200, "code %v: too few responses", code)
	}
}

// A generator generates random requests. The same seed yields the same requests, except
// for the access key, which is random.
type generator struct {
	*rand.Rand
	doc *openapi3.T
	ops []operation
	key string
}

func newGenerator(doc *openapi3.T, seed uint64, key string) *generator {
	ops := operations(doc)
	slices.SortFunc(ops, func(a, b operation) int { return strings.Compare(a.path, b.path) })
	return &generator{rand.New(rand.NewPCG(seed, 0)), doc, ops, key}
}

// Bodies that are nested more deeply than encoding/json allows.
var (
	deepArray  = strings.Repeat("[", 20_000)
	deepObject = strings.Repeat(`{"params":`, 20_000)
)

func one[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// A draft is a request that may be invalid.
type draft struct {
	method, path, query string
	header              http.Header
	body                string
	chunked             bool
	isCutOff            bool // the client closes its side of the connection before the end of the body
}

func (d draft) String() string {
	return fmt.Sprintf("%s %.1000q %.1000q chunked=%t cut off=%t %.1000q %.1000q", d.method, d.path, d.query, d.chunked,
		d.isCutOff, d.header, d.body)
}

func (d draft) request(t *testing.T, base string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), d.method, base, strings.NewReader(d.body))
	require.NoError(t, err)
	r.URL.Path, r.URL.RawQuery, r.Header = d.path, d.query, d.header
	if d.chunked {
		r.ContentLength = -1
	}
	return r
}

// cutOff sends a request whose body ends too early, closes its side of the connection,
// and reads the response.
func cutOff(r *http.Request) (*http.Response, error) {
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := r.Context().Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	r.ContentLength = max(r.ContentLength, 0) + 10
	r.Header.Del("Expect") // otherwise the first response is 100 Continue
	w := bufio.NewWriter(conn)
	_ = r.Write(w) // fails: the body is shorter than ContentLength
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body) // before the connection is closed
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, err
}

// draft returns a valid request. If invalid is set, parts of it are probably invalid.
func (g *generator) draft(invalid bool) draft {
	op := one(g, g.ops...)
	d := draft{method: op.method, path: op.path, header: http.Header{"Access-Key": {g.key}}, chunked: g.IntN(4) == 0}
	query := url.Values{}
	for _, p := range op.Parameters {
		if g.IntN(8) == 0 {
			continue
		}
		values := []string{fmt.Sprint(p.Value.Example), "102", "-1", "9223372036854775807"}
		typ := p.Value.Schema.Value.Type
		switch {
		case typ.Is("boolean"):
			values = []string{"true", "false"}
		case typ.Is("string"):
			values = append(values, "x", "é ☕", "a&b=c;d%", strings.Repeat("9", 1000))
		}
		query.Set(p.Value.Name, one(g, values...))
	}
	d.query = query.Encode()
	if op.RequestBody != nil {
		d.header.Set("Content-Type",
			one(g, "application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"))
		d.body = g.json(op.RequestBody.Value.Content["application/json"].Schema.Value, invalid && g.IntN(2) == 0)
	} else {
		d.chunked = false
	}
	if !invalid {
		return d
	}
	for again := true; again; again = g.IntN(3) == 0 {
		g.spoil(&d)
	}
	if g.IntN(100) == 0 && !d.isCutOff {
		d.body = strings.Repeat(" ", 1<<20) + d.body // usually above the fake server's limit: it then closes the connection
	}
	return d
}

// json returns a value of a schema. If invalid is set, values in it may be invalid.
func (g *generator) json(schema *openapi3.Schema, invalid bool) string {
	if invalid && g.IntN(4) == 0 {
		return one(g, `null`, `true`, `""`, `"1"`, `1.5`, `1.0`, `1e2`, `1e400`, `-0`, `01`, `0x1`, `NaN`, `[]`, `[1]`, `{}`,
			`{"":null}`, `{"ruleId":{"ruleId":1}}`, `"\ud800"`, "\"\xff\"", "\"\n\"", `undefined`, ``, deepArray, deepObject)
	}
	if schema.Type.Is("integer") {
		return one(g, "1", "2", "3", "20", "0", "-1", "301", "2147483647", "2147483648", "9007199254740993",
			"9223372036854775807", "-9223372036854775808", "9223372036854775808", strconv.FormatInt(g.Int64N(1<<40), 10))
	}
	switch {
	case schema.Type.Is("string"):
		return one(g, `""`, `"x"`, `"é ☕"`, `"301"`)
	case schema.Type.Is("boolean"):
		return one(g, "true", "false")
	case schema.Type.Is("number"):
		return one(g, "0", "1.5", "-2e3")
	case schema.Type.Is("array"):
		return "[" + g.json(schema.Items.Value, invalid) + "]"
	}
	var members []string
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if g.IntN(4) > 0 {
			members = append(members, strconv.Quote(name)+":"+g.json(schema.Properties[name].Value, invalid))
		}
	}
	if invalid && g.IntN(4) == 0 {
		members = append(members,
			one(g, `"unknown":1`, `"current":2,"current":3`, `"Current":2`, `"":{}`, `"list":[]`, `,`, `"current"`))
	}
	return "{" + strings.Join(members, one(g, ",", ", ", "\n,\t")) + "}"
}

// spoil changes one part of a request, so that it is probably invalid.
func (g *generator) spoil(d *draft) {
	switch g.IntN(9) {
	case 0:
		d.header.Set("Access-Key",
			one(g, "", " ", "x", g.key+"x", strings.ToLower(g.key), "\xff", strings.Repeat("k", 10_000)))
	case 1:
		d.header.Del("Access-Key")
	case 2:
		d.header["Content-Type"] = one(
			g,
			nil,
			[]string{""},
			[]string{"text/plain"},
			[]string{"application/xml"},
			[]string{"application/json;"},
			[]string{"application/json; =x"},
			[]string{
				"multipart/form-data",
			},
			[]string{"application/x-www-form-urlencoded"},
			[]string{"application/json", "text/plain"},
		)
	case 3:
		d.method = one(g, "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "UNKNOWN")
	case 4:
		d.path = one(g, "/", "/api", d.path+"/", d.path+"/1", "/"+d.path, strings.ToUpper(d.path),
			strings.Replace(d.path, "open", "../open", 1), d.path+"\x00", d.path+"?", d.path+"é ", "/api/open/unknown",
			strings.Repeat("/x", 2000))
	case 5:
		d.query += one(g, "x=1", "&mailId=1&mailId=2", "&mailId", "&mailId=", "&=", "%zz", ";", "&mailid=101",
			"&access-key="+g.key, "&x="+strings.Repeat("y", 10_000))
	case 6:
		name, value, _ := strings.Cut(
			one(g, "Accept: text/html", "Accept-Encoding: gzip", "Connection: close", "Cookie: a=b", "Expect: 100-continue",
				"Range: bytes=0-1", "If-None-Match: *", "X-Http-Method-Override: DELETE", "Content-Encoding: gzip", "Origin: null"),
			": ",
		)
		d.header.Set(name, value)
	case 7:
		d.isCutOff = true
	default:
		i := g.IntN(len(d.body) + 1)
		d.body = one(g, "", "null", "{", d.body[:i], d.body[i:], d.body[:i]+string(byte(g.IntN(256)))+d.body[i:],
			d.body+d.body, "\ufeff"+d.body, d.body+" x", "<html>", "current=1")
	}
}
