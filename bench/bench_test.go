package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// BenchmarkCPU is for profiles: go test -bench 'CPU/page_of_50/msgpush$' -cpuprofile cpu.out
func BenchmarkCPU(b *testing.B) {
	for _, s := range append(subjects, withoutDeadline) {
		for _, c := range contenders() {
			b.Run(s.name+"/"+strings.ReplaceAll(c.name, "/", " "), func(b *testing.B) {
				service, err := s.service()
				require.NoError(b, err)
				call, err := c.new("http://service.example.com", service)
				require.NoError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, s.call(call))
				}
			})
		}
	}
}

// A witness keeps the requests that a service gets.
type witness struct {
	service  *service
	requests []request
}

type request struct {
	method, path, query, key, accept, contentType string
	body                                          any
}

func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	var body any
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if len(b) > 0 {
			if err := json.Unmarshal(b, &body); err != nil {
				return nil, err
			}
		}
		r.Body = io.NopCloser(strings.NewReader(string(b)))
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/v4") // which gitlab's client adds
	w.requests = append(w.requests, request{r.Method, path, r.URL.RawQuery, r.Header.Get("access-key"), r.Header.Get("Accept"), r.Header.Get("Content-Type"), body})
	return w.service.RoundTrip(r)
}

func TestContendersAskTheSameAndUnderstandTheSame(t *testing.T) {
	for _, c := range contenders() {
		t.Run(c.name, func(t *testing.T) {
			service, err := newService(2, 50, 0)
			require.NoError(t, err)
			w := &witness{service: service}
			call, err := c.new("http://service.example.com", w)
			require.NoError(t, err)

			mail, err := call.mail(ctx, "5")
			require.NoError(t, err)
			var want msgpush.Envelope[msgpush.MailChannel]
			require.NoError(t, json.Unmarshal(service.mail, &want))
			assert.Equal(t, want.Data, *mail)

			p, err := call.page(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: 1, PageSize: 50}})
			require.NoError(t, err)
			assert.Equal(t, page{PageNum: 1, PageSize: 50, Total: 100, Pages: 2, List: records(50)}, *p)

			require.Len(t, w.requests, 2)
			for i := range w.requests {
				w.requests[i].contentType, _, _ = strings.Cut(w.requests[i].contentType, ";")
				assert.Contains(t, w.requests[i].accept, "json") // some prefer a type of their own service
				w.requests[i].accept = ""
			}
			assert.Equal(t, "application/json", w.requests[1].contentType)
			w.requests[0].contentType = "" // some send one with a GET
			assert.Equal(t, request{"GET", mailDetailPath, "mailId=5", accessKey, "", "", nil}, w.requests[0])
			body := map[string]any{"current": 1.0, "pageSize": 50.0, "params": map[string]any{}}
			assert.Equal(t, request{"POST", forwardLogPath, "", accessKey, "", "application/json", body}, w.requests[1])
		})
	}
}

func TestContendersReportARefusal(t *testing.T) {
	for _, c := range contenders() {
		call, err := c.new("http://service.example.com", canned{200, []byte(`{"code":500,"msg":"no"}`)})
		require.NoError(t, err)
		_, err = call.mail(ctx, "5")
		assert.ErrorContains(t, err, "500", c.name)
	}
}

func TestEverythingIsMeasuredAndShown(t *testing.T) {
	dir := t.TempDir()
	readme := filepath.Join(dir, "README.md")
	require.NoError(t, os.WriteFile(readme, []byte("before\n"+tablesBegin+"old\n"+tablesEnd+"after\n"), 0o666))
	quick := times{rounds: 2, duration: time.Microsecond, calls: 64, walked: 3, delay: time.Microsecond, million: 2, growth: []int{1, 2}}
	require.NoError(t, run(quick, dir, readme, io.Discard))

	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	tables := string(text)
	assert.True(t, strings.HasPrefix(tables, "before\n") && strings.HasSuffix(tables, "after\n"))
	assert.NotContains(t, tables, "old")
	assert.NotContains(t, tables, "NaN")
	for _, want := range []string{
		"### Goals", "### CPU: mail detail", "### CPU: page of 50", "### CPU: page of 1,000", "### CPU: mail detail, without a deadline",
		"### Loopback: mail detail, 1 caller", "### Loopback: page of 50, 64 callers", "### HTTP/2 with GOAWAY every 100 requests: mail detail, 16 callers", "### Walk: 3 × 50 records", "### Memory", "### Growth: a walk through 2 × 50 records",
		"| msgpush, Prefetch(8) |", "github.com/digitalocean/godo v",
	} {
		assert.Contains(t, tables, want)
	}
	for _, c := range contenders() {
		assert.GreaterOrEqual(t, strings.Count(tables, "| "+c.name+" |"), 9, c.name)
	}
	for _, file := range []string{"walk.svg", "growth.svg"} {
		svg, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		assert.Contains(t, string(svg), "msgpush", file)
		assert.Contains(t, string(svg), "</svg>", file)
	}
}

func TestAMeasurementThatGoesWrongIsReported(t *testing.T) {
	service, err := newService(3, 10, 0)
	require.NoError(t, err)
	short, err := newService(2, 10, 0)
	require.NoError(t, err)
	for _, w := range walkers() {
		loop, err := w.loop(short)
		require.NoError(t, err)
		assert.ErrorContains(t, walk(service, loop, nil), "20 of 30 records", w.name)
	}
}
