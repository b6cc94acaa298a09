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

// BenchmarkCPU is for CPU profiles: go test -bench 'CPU/page_of_50/msgpush$' -cpuprofile cpu.out
func BenchmarkCPU(b *testing.B) {
	for _, w := range append(workloads, withoutDeadline) {
		for _, c := range clients() {
			b.Run(w.name+"/"+strings.ReplaceAll(c.name, "/", " "), func(b *testing.B) {
				service, err := w.service()
				require.NoError(b, err)
				a, err := c.new("https://service.example.com", service)
				require.NoError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, w.call(a))
				}
			})
		}
	}
}

type requestRecorder struct {
	service  *fakeService
	requests []request
}

type request struct {
	method, path, query, key, accept, contentType string
	body                                          any
}

func (r *requestRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var body any
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if len(b) > 0 {
			if err := json.Unmarshal(b, &body); err != nil {
				return nil, err
			}
		}
		req.Body = io.NopCloser(strings.NewReader(string(b)))
	}
	path := strings.TrimPrefix(req.URL.Path, "/api/v4") // gitlab's client adds it
	r.requests = append(
		r.requests,
		request{
			req.Method,
			path,
			req.URL.RawQuery,
			req.Header.Get("access-key"),
			req.Header.Get("Accept"),
			req.Header.Get("Content-Type"),
			body,
		},
	)
	return r.service.RoundTrip(req)
}

func TestClientsSendAndDecodeTheSame(t *testing.T) {
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			service, err := newFakeService(2, 50, 0)
			require.NoError(t, err)
			recorder := &requestRecorder{service: service}
			a, err := c.new("https://service.example.com", recorder)
			require.NoError(t, err)

			mail, err := a.mail(ctx, "5")
			require.NoError(t, err)
			var want msgpush.Envelope[msgpush.MailChannel]
			require.NoError(t, json.Unmarshal(service.mail, &want))
			assert.Equal(t, want.Data, *mail)

			p, err := a.page(ctx, msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: 1, PageSize: 50}})
			require.NoError(t, err)
			assert.Equal(t, page{PageNum: 1, PageSize: 50, Total: 100, Pages: 2, List: records(50)}, *p)

			require.Len(t, recorder.requests, 2)
			for i := range recorder.requests {
				recorder.requests[i].contentType, _, _ = strings.Cut(recorder.requests[i].contentType, ";")
				assert.Contains(t, recorder.requests[i].accept, "json") // some prefer a media type of their own service
				recorder.requests[i].accept = ""
			}
			assert.Equal(t, "application/json", recorder.requests[1].contentType)
			recorder.requests[0].contentType = "" // some send it with a GET
			assert.Equal(t, request{"GET", mailDetailPath, "mailId=5", accessKey, "", "", nil}, recorder.requests[0])
			body := map[string]any{"current": 1.0, "pageSize": 50.0, "params": map[string]any{}}
			assert.Equal(t, request{"POST", forwardLogPath, "", accessKey, "", "application/json", body}, recorder.requests[1])
		})
	}
}

func TestClientsReturnErrorResponses(t *testing.T) {
	for _, c := range clients() {
		a, err := c.new("https://service.example.com", canned{200, []byte(`{"code":500,"msg":"no"}`)})
		require.NoError(t, err)
		_, err = a.mail(ctx, "5")
		assert.ErrorContains(t, err, "500", c.name)
	}
}

func TestRunWritesTablesAndPlots(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	quick := config{
		rounds:         2,
		duration:       time.Microsecond,
		calls:          64,
		iterationPages: 3,
		delay:          time.Microsecond,
		followPages:    2,
		idlePolls:      3,
		memoryPages:    2,
		growthPages:    []int{1, 2},
	}
	require.NoError(t, run(quick, dir, &out))

	tables := out.String()
	assert.NotContains(t, tables, "NaN")
	assert.NotContains(t, tables, "Inf")
	for _, want := range []string{
		"## Goals",
		"## CPU: mail detail",
		"## CPU: page of 50",
		"## CPU: page of 1,000",
		"## CPU: mail detail, without a deadline",
		"## Loopback: mail detail, 1 caller",
		"## Loopback: page of 50, 64 callers",
		"## HTTP/2 with GOAWAY every 100 requests: mail detail, 16 callers",
		"## Iteration: 3 × 50 records",
		"## Following: idle polls of 2 × 50 records",
		"| following: requests per idle poll | ≤ 1.00 | 1.00 | met |",
		"## Memory",
		"## Growth: iteration over 2 × 50 records",
		"| msgpush, Prefetch(8) |",
		"github.com/digitalocean/godo v",
	} {
		assert.Contains(t, tables, want)
	}
	for _, c := range clients() {
		assert.GreaterOrEqual(t, strings.Count(tables, "| "+c.name+" |"), 9, c.name)
	}
	for file, texts := range map[string][]string{
		"iteration.svg": {"time (s)", ">other clients", ">msgpush<"},
		"growth.svg":    {"time (ms)", "memory (KB)", "pages of 50 records", ">msgpush<", ">msgpush, Prefetch(8)<"},
	} {
		svg, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		for _, text := range append(texts, "</svg>") {
			assert.Contains(t, string(svg), text, file)
		}
	}
}

func TestRatioIsFinite(t *testing.T) {
	for rounds := 1; rounds <= 10; rounds++ {
		zero, base, other := &entry{}, &entry{}, &entry{}
		for i := range rounds {
			zero.rounds = append(zero.rounds, measurement{"time": 0})
			base.rounds = append(base.rounds, measurement{"time": 1})
			other.rounds = append(other.rounds, measurement{"time": float64(1 + i)})
		}
		text := ratio(other.ratio("time", base))
		assert.NotContains(t, text, "Inf")
		assert.Equal(t, rounds >= 6, strings.Contains(text, "–"), "%d rounds: %s", rounds, text)
		assert.Equal(t, "–", ratio(other.ratio("time", zero)))
		assert.Equal(t, "–", ratio(zero.ratio("time", zero)))
	}
}

func TestMissingRecordsAreReported(t *testing.T) {
	service, err := newFakeService(3, 10, 0)
	require.NoError(t, err)
	short, err := newFakeService(2, 10, 0)
	require.NoError(t, err)
	for _, it := range iterators() {
		iterate, err := it.new(short)
		require.NoError(t, err)
		assert.ErrorContains(t, readAll(service, iterate, nil), "20 of 30 records", it.name)
	}
}
