// Package bench compares the speed of the client with that of other clients; see README.md.
package bench

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

const baseURL = "https://service.example.com"

// each runs a benchmark for each client, with a service in memory.
func each(b *testing.B, s *service, f func(*testing.B, api)) {
	for _, c := range clients() {
		b.Run("client="+c.name, func(b *testing.B) {
			a, err := c.new(baseURL, s)
			require.NoError(b, err)
			b.ReportAllocs()
			f(b, a)
		})
	}
}

// BenchmarkMailDetail has a deadline for each call, as most programs set one.
func BenchmarkMailDetail(b *testing.B) {
	each(b, newService(b, 1, 1), func(b *testing.B, a api) {
		for b.Loop() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			callMail(ctx, b, a)
			cancel()
		}
	})
}

// BenchmarkMailDetailWithoutDeadline has calls to which only msgpush applies a timeout.
func BenchmarkMailDetailWithoutDeadline(b *testing.B) {
	each(b, newService(b, 1, 1), func(b *testing.B, a api) {
		for b.Loop() {
			callMail(context.Background(), b, a)
		}
	})
}

// BenchmarkPage requests a page of 50 records.
func BenchmarkPage(b *testing.B) {
	const pageSize = 50
	each(b, newService(b, 1, pageSize), func(b *testing.B, a api) {
		for b.Loop() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			p, err := a.page(ctx, requestOf(1, pageSize))
			cancel()
			if err != nil || len(p.List) != pageSize {
				b.Fatal("incomplete page", err)
			}
		}
	})
}

// BenchmarkCallers makes calls over loopback from 64 concurrent callers. The time for each
// call is the time of client and server together, divided by the number of CPUs.
func BenchmarkCallers(b *testing.B) {
	const callers = 64
	server := httptest.NewServer(newService(b, 1, 1))
	defer server.Close()
	for _, c := range clients() {
		b.Run("client="+c.name, func(b *testing.B) {
			transport := &http.Transport{MaxIdleConnsPerHost: callers} // with the default of 2, most calls would dial
			defer transport.CloseIdleConnections()
			a, err := c.new(server.URL, transport)
			require.NoError(b, err)
			b.ReportAllocs()
			b.SetParallelism(callers / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					callMail(ctx, b, a)
					cancel()
				}
			})
		})
	}
}

func callMail(ctx context.Context, tb testing.TB, a api) {
	m, err := a.mail(ctx, "5")
	if err != nil || m.ID != 5 {
		tb.Error("wrong mail channel", err)
	}
}

func requestOf(number, pageSize int) msgpush.ForwardLogRequest {
	return msgpush.ForwardLogRequest{PageRequest: msgpush.PageRequest{Current: number, PageSize: pageSize}}
}

const (
	iteratedPages    = 200
	iteratedPageSize = 50
)

// BenchmarkIteration reads a list of 200 pages of 50 records. The baseline requests one page after
// another, and keeps no ids.
func BenchmarkIteration(b *testing.B) {
	s := newService(b, iteratedPages, iteratedPageSize)
	a, err := clients()[0].new(baseURL, s)
	require.NoError(b, err)
	b.Run("client="+baseline, func(b *testing.B) { iterate(b, pageLoop(a)) })

	client, err := newMsgpushClient(baseURL, s)
	require.NoError(b, err)
	pager := client.ForwardLogPager(msgpush.ForwardLogParams{})
	pager.PageSize = iteratedPageSize
	b.Run("client=msgpush", func(b *testing.B) { iterate(b, pager.All(context.Background())) })
	pager.Prefetch = 8
	b.Run("client=msgpush+prefetch", func(b *testing.B) { iterate(b, pager.All(context.Background())) })
}

// iterate fails unless the records come in order, without a gap.
func iterate(b *testing.B, all iter.Seq2[msgpush.ForwardLog, error]) {
	b.ReportAllocs()
	for b.Loop() {
		next := int64(firstID)
		for record, err := range all {
			if err != nil || record.ID != next {
				b.Fatal("wrong record", record.ID, err)
			}
			next++
		}
		if next != firstID+iteratedPages*iteratedPageSize {
			b.Fatal("records are missing")
		}
	}
}

// pageLoop requests one page after another until the last, as users of a client without iterators do.
func pageLoop(a api) iter.Seq2[msgpush.ForwardLog, error] {
	return func(yield func(msgpush.ForwardLog, error) bool) {
		for number, pages := 1, 1; number <= pages; number++ {
			p, err := a.page(context.Background(), requestOf(number, iteratedPageSize))
			if err != nil {
				yield(msgpush.ForwardLog{}, err)
				return
			}
			pages = p.Pages
			for _, record := range p.List {
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}

// A recorder records the requests to a service.
type recorder struct {
	service  *service
	requests []*http.Request
	bodies   []string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		text, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		body = string(text)
		req.Body = io.NopCloser(strings.NewReader(body))
	}
	r.requests = append(r.requests, req)
	r.bodies = append(r.bodies, body)
	return r.service.RoundTrip(req)
}

// The comparison is fair only if all clients do the same.
func TestClientsSendAndDecodeTheSame(t *testing.T) {
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			recorded := &recorder{service: newService(t, 2, 50)}
			a, err := c.new(baseURL, recorded)
			require.NoError(t, err)

			mail, err := a.mail(t.Context(), "5")
			require.NoError(t, err)
			var want msgpush.Envelope[msgpush.MailChannel]
			require.NoError(t, json.Unmarshal(mailBody, &want))
			assert.Equal(t, want.Data, *mail)

			p, err := a.page(t.Context(), requestOf(1, 50))
			require.NoError(t, err)
			assert.Equal(t, page{PageNum: 1, PageSize: 50, Total: 100, Pages: 2, List: records(0, 50)}, *p)

			require.Len(t, recorded.requests, 2)
			for i, want := range []string{
				"GET " + baseURL + mailDetailPath + "?mailId=5",
				"POST " + baseURL + forwardLogPath,
			} {
				req := recorded.requests[i]
				assert.Equal(t, want, req.Method+" "+req.URL.String())
				assert.Equal(t, accessKey, req.Header.Get("access-key"))
				assert.Contains(t, req.Header.Get("Accept"), "json") // some prefer a media type of their own service
			}
			assert.Empty(t, recorded.bodies[0])
			assert.JSONEq(t, `{"current":1,"pageSize":50,"params":{}}`, recorded.bodies[1])
			assert.Contains(t, recorded.requests[1].Header.Get("Content-Type"), "application/json")
		})
	}
}
