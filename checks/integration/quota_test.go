//go:build linux

package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// quotaSuffices checks that no call fails because the retry quota is used up: each call that
// fails has made all its attempts. How many fail depends on the speed of the machine and is
// only logged. If many fail, their retries use up the quota, which is not judged.
func quotaSuffices(s *setup, r report) {
	s.Logf("%d calls failed after %d attempts, %d earlier", r.exhausted, defaultAttempts, r.failed()-r.exhausted)
	if r.exhausted < s.load.callers/3 {
		assert.Equal(s, r.exhausted, r.failed(), "calls that failed: %q", r.firstErrors)
	}
}

// 600 callers start together, behind a gateway that accepts 200 requests a second.
func TestNginxHerd(t *testing.T) {
	var scenarios []scenario
	for name, header := range map[string]string{
		"without Retry-After": "",
		"with Retry-After":    "add_header Retry-After 1 always;",
	} {
		scenarios = append(scenarios, scenario{
			name: name, http: "limit_req_zone $server_port zone=all:1m rate=200r/s;",
			config: "limit_req zone=all burst=20 nodelay; limit_req_status 429; " +
				"error_page 429 @limited; location @limited { " + header + " return 429; }",
			load: load{callers: 600, calls: 1200, pageSize: 5}, closes: true, expect: quotaSuffices,
		})
	}
	runInParallel(t, startNginx, scenarios)
}
