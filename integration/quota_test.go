//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// onceASecond is the pause of a caller that makes one call a second, on average.
func onceASecond() time.Duration { return 500*time.Millisecond + rand.N(time.Second) }

// Almost all calls outlast a gateway that is gone for two seconds, with 250 and with 800
// callers.
func TestNginxOutage(t *testing.T) {
	var scenarios []scenario
	for callers, calls := range map[int]int{250: 12, 800: 8} {
		scenarios = append(scenarios, scenario{
			name: fmt.Sprint(callers, " callers"),
			load: load{callers: callers, calls: calls * callers, pageSize: 5, pause: onceASecond}, maxDials: 10 * callers,
			during: func(s *setup) {
				s.waitFor(0.3)
				s.gateway.kill(syscall.SIGKILL)
				time.Sleep(2 * time.Second)
				s.gateway.start()
			},
			expect: func(s *setup, r report) {
				assert.LessOrEqual(s, float64(r.failed()), 0.003*float64(r.calls), "calls that failed: %q", r.firstErrors)
			},
		})
	}
	runScenarios(t, startNginx, scenarios)
}

// 600 callers start together, behind a gateway that accepts 200 requests a second.
func TestNginxHerd(t *testing.T) {
	var scenarios []scenario
	for name, header := range map[string]string{"without Retry-After": "", "with Retry-After": "add_header Retry-After 1 always;"} {
		scenarios = append(scenarios, scenario{
			name: name, http: "limit_req_zone $server_port zone=all:1m rate=200r/s;",
			config: "limit_req zone=all burst=20 nodelay; limit_req_status 429; error_page 429 @limited; location @limited { " + header + " return 429; }",
			load:   load{callers: 600, calls: 1200, pageSize: 5, timeout: time.Minute}, maxDials: 3000,
			expect: func(s *setup, r report) {
				assert.LessOrEqual(s, r.failed(), r.calls/100, "calls that failed: %q", r.firstErrors)
			},
		})
	}
	runScenarios(t, startNginx, scenarios)
}
