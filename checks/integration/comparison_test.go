//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"

	"example.com/msgpush"
)

var outages = flag.Bool("outages", false, "compare the client with other clients in outages")

// A contender makes calls, each of them with one request: a GET, or a POST that is not
// idempotent. Its number makes the body of its POSTs different from other POSTs.
type contender struct {
	name string
	call func(ctx context.Context, method string, body any) error

	mu          sync.Mutex
	failed, met int // calls that failed; calls that an outage interrupted or delayed
}

const getPath, postPath = "/api/open/mail/detail?mailId=100", "/api/open/forwardLog/list"

// contenders returns the client, go-retryablehttp with its defaults, and resty with six retries.
func (s *setup) contenders() []*contender {
	client := newClient(s.T, s.url, s.server)
	retryable := retryablehttp.NewClient()
	retryable.Logger = nil
	restyClient := resty.New().SetRetryCount(6).SetLogger(silent{})
	s.Cleanup(retryable.HTTPClient.CloseIdleConnections)
	s.Cleanup(restyClient.GetClient().CloseIdleConnections)
	return []*contender{
		{name: "msgpush", call: func(ctx context.Context, method string, body any) error {
			if method == http.MethodGet {
				_, err := client.MailDetail(ctx, "100")
				return err
			}
			_, err := msgpush.Call[msgpush.Page[msgpush.ForwardLog]](ctx, client,
				msgpush.Request{Method: method, Path: postPath, Body: body})
			return err
		}},
		{name: "go-retryablehttp", call: func(ctx context.Context, method string, body any) error {
			path, content := getPath, []byte(nil)
			if method == http.MethodPost {
				path = postPath
				content, _ = json.Marshal(body) // a struct of numbers
			}
			req, err := retryablehttp.NewRequestWithContext(ctx, method, s.url+path, content)
			if err != nil {
				return err
			}
			req.Header.Set("access-key", s.server.AccessKey())
			req.Header.Set("Content-Type", "application/json")
			resp, err := retryable.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return statusError(resp.StatusCode, err)
		}},
		{name: "resty", call: func(ctx context.Context, method string, body any) error {
			path, r := getPath, restyClient.R().SetContext(ctx).SetHeader("access-key", s.server.AccessKey())
			if method == http.MethodPost {
				path = postPath
				r.SetBody(body)
			}
			resp, err := r.Execute(method, s.url+path)
			return statusError(resp.StatusCode(), err)
		}},
	}
}

func statusError(status int, err error) error {
	if err == nil && status != http.StatusOK {
		return fmt.Errorf("HTTP %d", status)
	}
	return err
}

// silent is a logger of resty that logs nothing.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// Other clients meet the same outages as the client, at the same time. Only the POSTs that
// arrive twice are judged.
func TestOutagesWithOtherClients(t *testing.T) {
	if !*outages {
		t.Skip("needs -outages: it takes six minutes")
	}
	signals := map[syscall.Signal]string{syscall.SIGKILL: "killed", syscall.SIGTERM: "terminated"}
	for _, callers := range []int{64, 250} {
		for _, gone := range []time.Duration{2 * time.Second, 10 * time.Second} {
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					name := fmt.Sprintf("%v | %s | %d | %s", gone, signals[signal], callers, method)
					t.Run(name, func(t *testing.T) {
						s := newSetup(t)
						startNginx(s, scenario{})
						s.server.SetLatency(100 * time.Millisecond) // so that the outage interrupts requests
						contenders := s.contenders()
						s.meetOutage(contenders, callers, method, signal, gone)
						twice := s.requestsSentTwice(len(contenders))
						row := "| " + name
						for _, c := range contenders {
							row += fmt.Sprintf(" | %d of %d", c.failed, c.met)
						}
						if method == http.MethodPost {
							row += fmt.Sprintf(" | %d | %d | %d |", twice[0], twice[1], twice[2])
							assert.Zero(t, twice[0], "POSTs of the client that arrived twice")
						} else {
							row += " | | | |"
						}
						addRow(t, outageColumns, row)
					})
				}
			}
		}
	}
}

// meetOutage lets callers of each contender make a call a second, until three seconds after
// an outage.
func (s *setup) meetOutage(
	contenders []*contender,
	callers int,
	method string,
	signal syscall.Signal,
	gone time.Duration,
) {
	var running sync.WaitGroup
	var begun, ended, stopped atomic.Bool // the outage, the outage, the callers
	for number, c := range contenders {
		for caller := range callers {
			running.Go(func() {
				for call := 0; !stopped.Load(); call++ {
					body := msgpush.ForwardLogRequest{
						PageRequest: msgpush.PageRequest{Current: 1 + caller + call*callers, PageSize: 1 + number},
					}
					late := ended.Load()
					err := c.call(s.Context(), method, body)
					c.mu.Lock()
					if begun.Load() && !late {
						c.met++
					}
					if err != nil {
						c.failed++
					}
					c.mu.Unlock()
					time.Sleep(onceASecond())
				}
			})
		}
	}
	time.Sleep(3 * time.Second)
	begun.Store(true)
	s.outage(signal, gone)
	ended.Store(true)
	time.Sleep(3 * time.Second)
	stopped.Store(true)
	running.Wait()
}

// requestsSentTwice returns the number of POSTs of each contender that arrived more than once.
func (s *setup) requestsSentTwice(contenders int) []int {
	times := map[string]int{}
	for _, r := range s.server.Requests() {
		times[fmt.Sprint(r.Body)]++
	}
	twice := make([]int, contenders)
	for body, n := range times {
		for number := range contenders {
			if n > 1 && strings.Contains(body, fmt.Sprintf("pageSize:%d", 1+number)) {
				twice[number]++
			}
		}
	}
	return twice
}
