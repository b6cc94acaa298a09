//go:build linux

package integration

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// startNginx starts nginx in front of the fake server, with two workers.
func startNginx(s *setup, sc scenario) {
	s.gateway = newGateway(s.T, "nginx", freeAddr())
	config := strings.NewReplacer("DIR", s.gateway.dir, "LISTEN", s.gateway.addr, "UPSTREAM", s.upstream.addr, "CERTIFICATE", certificate).Replace(`
		daemon off; worker_processes 2; pid DIR/pid; error_log DIR/error.log; USER
		events {}
		http {
			access_log off;
			client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/fastcgi; uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
			HTTP
			server {
				listen LISTEN TLS;
				location / { proxy_pass http://UPSTREAM; }
				SERVER
			}
		}`)
	user, tls := "", ""
	if os.Geteuid() == 0 {
		user = "user root;" // another user has no access to the directory
	}
	if sc.tls {
		tls = fmt.Sprintf("ssl http2; ssl_certificate %s; ssl_certificate_key %[1]s", certificate)
	}
	config = strings.NewReplacer("USER", user, "TLS", tls, "HTTP", sc.http, "SERVER", sc.config).Replace(config)
	s.gateway.args = append(s.gateway.args, "-e", s.gateway.file("error.log"), "-p", s.gateway.dir, "-c", s.gateway.configure(config))
	s.url = "http://" + s.gateway.addr
	if sc.tls {
		s.url = "https://" + s.gateway.addr
	}
	s.gateway.start()
}

func TestNginx(t *testing.T) {
	runScenarios(t, startNginx, []scenario{
		{name: "defaults", plain: true},
		{name: "TLS and HTTP/2", tls: true, plain: true},
		{name: "connections closed after 3 requests", config: "keepalive_requests 3;", maxDials: 2000, plain: true},
		{name: "restarts", during: func(s *setup) { s.repeat(5, func(int) { s.gateway.restart() }) }, maxDials: 1000},
		{name: "reloads", during: func(s *setup) { s.repeat(5, func(int) { s.gateway.signal(syscall.SIGHUP) }) }, maxDials: 1000},
	})
}
