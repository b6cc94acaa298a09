//go:build linux

package integration

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

// startTinyproxy starts tinyproxy. net/http uses no proxy for loopback addresses,
// so the fake server is addressed as 0.0.0.0, which Linux connects to 127.0.0.1.
func startTinyproxy(s *setup, sc scenario) {
	target := "http://" + s.upstream.addr
	if sc.tls {
		target = serveTLS(s)
	}
	s.url = strings.Replace(target, "127.0.0.1", "0.0.0.0", 1)
	_, port, _ := strings.Cut(proxyAddr, ":")
	_, targetPort, _ := strings.Cut(s.url, "0.0.0.0:")
	s.gateway = newGateway(s.T, "tinyproxy", proxyAddr)
	config := "Listen 127.0.0.1\nPort " + port + "\nTimeout 60\nMaxClients 200\nLogLevel Critical\n" + sc.config + "\n"
	if !strings.Contains(config, "ConnectPort") {
		config += "ConnectPort " + targetPort + "\n"
	}
	s.gateway.args = append(s.gateway.args, "-d", "-c", s.gateway.configure(config))
	s.gateway.start()
}

func TestTinyproxy(t *testing.T) {
	rejected := func(text string) func(*setup, report) {
		return func(s *setup, r report) {
			assert.Equal(s, s.load.calls, r.request)
			assert.Contains(s, r.firstErrors[0], "the proxy "+proxyAddr+" rejected CONNECT: "+text+" (1 attempt)")
			assert.NotContains(s, r.firstErrors[0], proxyPassword)
			assert.Empty(s, s.server.Requests())
		}
	}
	runScenarios(t, startTinyproxy, []scenario{
		{name: "CONNECT", tls: true},
		{name: "CONNECT with a password", tls: true, config: "BasicAuth " + proxyUser + " " + proxyPassword},
		{
			name:   "CONNECT with a wrong password",
			tls:    true,
			config: "BasicAuth " + proxyUser + " another",
			load:   load{calls: 100},
			closes: true,
			expect: rejected("HTTP 401 Unauthorized"),
		},
		{
			name:   "CONNECT to a port that is not allowed",
			tls:    true,
			config: "ConnectPort 1",
			load:   load{calls: 100},
			closes: true,
			expect: rejected("HTTP 403 Forbidden"),
		},
		{name: "CONNECT, 5 kills", tls: true, during: kill, retry: patient, closes: true},
		{name: "plain", load: load{calls: 1000}, closes: true},
		{
			name:   "plain with a password",
			config: "BasicAuth " + proxyUser + " " + proxyPassword,
			load:   load{calls: 1000},
			closes: true,
		},
		{
			name:   "plain with a wrong password",
			config: "BasicAuth " + proxyUser + " another",
			load:   load{calls: 100},
			closes: true,
			expect: func(s *setup, r report) {
				assert.Equal(s, s.load.calls, r.api)
				assert.Contains(s, r.firstErrors[0], "HTTP 401 Unauthorized")
			},
		},
		{name: "plain, 5 kills", during: kill, retry: patient, load: load{calls: 1000}, closes: true},
	})
}

// kill kills the gateway and starts it again, five times.
func kill(s *setup) {
	s.repeat(5, func(int) {
		s.gateway.kill(syscall.SIGKILL)
		s.gateway.start()
	})
}
