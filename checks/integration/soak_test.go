//go:build linux

package integration

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

var soak = flag.Duration("soak", 0, "how long TestSoak runs; 0 skips it")

// TestSoak makes calls and iterates behind nginx and HAProxy, over HTTP/1 and HTTP/2, while
// faults happen all the time: restarts, reloads, suspended workers, toxics between the
// gateway and the server, and replaced keys. With the default policy, no call may fail.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("needs -soak, such as -soak 6m")
	}
	checkLeaks(t)
	goroutinesBefore, filesBefore := len(goroutines()), openFiles(t)
	var mu sync.Mutex
	var total report
	records, iterations, faults := 0, 0, map[string]int{}
	t.Run("gateways", func(t *testing.T) {
		deadline := time.Now().Add(*soak)
		var running sync.WaitGroup
		for _, tt := range []struct {
			start   func(*setup, scenario)
			tls     bool
			iterate bool
		}{
			{startNginx, false, false}, {startNginx, true, false}, {startHAProxy, false, false}, {startHAProxy, true, false},
			{startNginx, true, true}, {startHAProxy, false, true},
		} {
			s := startSetup(t)
			tt.start(s, scenario{tls: tt.tls})
			client, err := msgpush.NewClient(s.url, "", s.rotatingKey(), msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey),
				msgpush.WithLogger(logger()))
			require.NoError(t, err)
			s.load = load{
				calls:   1000,
				callers: 8,
				timeout: 2 * time.Minute,
				pause:   func() time.Duration { return rand.N(100 * time.Millisecond) },
			}.withDefaults()
			running.Go(func() {
				for time.Now().Before(deadline) {
					if tt.iterate {
						n := s.iterateWhileListChanges(client, 20_000, 4)
						mu.Lock()
						records += n
						iterations++
						mu.Unlock()
						continue
					}
					r := s.succeed(client, s.load, nil)
					mu.Lock()
					total.calls += r.calls
					total.succeeded += r.succeeded
					total.wrong += r.wrong
					mu.Unlock()
				}
			})
			running.Go(func() {
				for time.Sleep(rand.N(4 * time.Second)); time.Until(deadline) > 0; time.Sleep(rand.N(4 * time.Second)) {
					fault := s.causeFault()
					mu.Lock()
					faults[fault]++
					mu.Unlock()
				}
			})
		}
		running.Wait()
	})
	eventually(t, "connections are closed",
		func() bool { return len(goroutines()) <= goroutinesBefore && openFiles(t) <= filesBefore })
	t.Logf("%d calls, %d succeeded, %d wrong; %d iterations with %d records", total.calls, total.succeeded, total.wrong,
		iterations, records)
	for _, fault := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%d times: %s", faults[fault], fault)
	}
	t.Logf("%d log lines and error texts searched for keys", shown.texts)
	t.Logf("goroutines: %d before, %d after; file descriptors: %d before, %d after", goroutinesBefore, len(goroutines()),
		filesBefore, openFiles(t))
}

// causeFault causes a random fault and ends it. It returns the name of the fault.
func (s *setup) causeFault() string {
	toxic := func(text string) func() {
		return func() {
			s.upstream.restart(text)
			time.Sleep(2 * time.Second)
			s.upstream.restart("")
		}
	}
	faults := map[string]func(){
		"restart": s.gateway.restart,
		"killed": func() {
			s.gateway.kill(syscall.SIGKILL)
			time.Sleep(rand.N(time.Second))
			s.gateway.start()
		},
		"reload": func() {
			signal := syscall.SIGHUP
			if strings.Contains(s.gateway.args[0], "haproxy") {
				signal = syscall.SIGUSR2
			}
			s.gateway.signal(signal)
		},
		"suspended worker": func() {
			if workers := s.workers(); len(workers) > 0 {
				worker := workers[rand.IntN(len(workers))]
				_ = syscall.Kill(worker, syscall.SIGSTOP) // fails if the worker has ended
				time.Sleep(rand.N(12 * time.Second))
				_ = syscall.Kill(worker, syscall.SIGCONT)
			}
		},
		"replaced key":         func() { s.rotate(rand.Int()) },
		"server stopped":       func() { s.upstream.stop(); time.Sleep(rand.N(500 * time.Millisecond)); s.upstream.start() },
		"toxic latency":        toxic(`{"type": "latency", "attributes": {"latency": 100, "jitter": 100}}`),
		"toxic reset":          toxic(`{"type": "reset_peer", "toxicity": 0.3, "attributes": {"timeout": 1}}`),
		"toxic cut":            toxic(`{"type": "cut", "attributes": {"min": 0, "max": 100000}}`),
		"toxic lost responses": toxic(`{"type": "timeout", "toxicity": 0.1, "attributes": {"timeout": 500}}`),
	}
	names := slices.Sorted(maps.Keys(faults))
	name := names[rand.IntN(len(names))]
	faults[name]()
	return name
}

// workers returns the processes that the gateway has started.
func (s *setup) workers() []int {
	var ids []int
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.gateway.cmd.Process.Pid))
	for field := range strings.FieldsSeq(string(text)) {
		if id, err := strconv.Atoi(field); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
