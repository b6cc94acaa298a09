//go:build linux

package integration

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startApache starts Apache httpd in front of the fake server.
func startApache(s *setup, sc scenario) {
	s.gateway = newGateway(s.T, "apache2", freeAddr())
	var modules strings.Builder
	for _, module := range []string{"mpm_event", "authz_core", "proxy", "proxy_http", "ssl", "http2"} {
		modules.WriteString("LoadModule " + module + "_module /usr/lib/apache2/modules/mod_" + module + ".so\n")
	}
	tls, scheme := "", "http://"
	if sc.tls {
		tls, scheme = "Protocols h2 http/1.1\nSSLEngine on\nSSLCertificateFile "+certificate, "https://"
	}
	// With an AcceptFilter, Apache never closes a connection on which nothing was sent.
	config := strings.NewReplacer(
		"MODULES", modules.String(),
		"DIR", s.gateway.dir,
		"LISTEN", s.gateway.addr,
		"UPSTREAM", s.upstream.addr,
		"TLS", tls,
	).Replace(`
MODULES
ServerRoot DIR
DefaultRuntimeDir DIR
PidFile DIR/pid
ErrorLog DIR/error.log
ServerName 127.0.0.1
AcceptFilter http none
AcceptFilter https none
User www-data
Listen LISTEN
TLS
ProxyPass / http://UPSTREAM/
`)
	s.gateway.args = append(s.gateway.args, "-D", "FOREGROUND", "-f", s.gateway.configure(config))
	s.url = scheme + s.gateway.addr
	s.gateway.start()
}

// passAccessKeys makes Varnish cache no response to a request with an access key. Without
// this rule, Varnish returns the cached response to a GET even to a request with another key.
const passAccessKeys = "sub vcl_recv { if (req.http.access-key) { return (pass); } }"

// startVarnish starts Varnish in front of the fake server, with a cache.
func startVarnish(s *setup, sc scenario) {
	s.gateway = newGateway(s.T, "varnishd", freeAddr())
	host, port, err := net.SplitHostPort(s.upstream.addr)
	require.NoError(s, err)
	config := "vcl 4.1;\nbackend default { .host = \"" + host + "\"; .port = \"" + port + "\"; }\n" + sc.config + "\n"
	s.gateway.args = append(s.gateway.args, "-F", "-j", "none", "-n", s.gateway.file("work"), "-s", "malloc,16M",
		"-a", s.gateway.addr, "-f", s.gateway.configure(config))
	s.url = "http://" + s.gateway.addr
	s.gateway.start()
}

// startSquid starts Squid as a gateway in front of the fake server.
func startSquid(s *setup, _ scenario) {
	s.gateway = newGateway(s.T, "squid", freeAddr())
	_, port, err := net.SplitHostPort(s.upstream.addr)
	require.NoError(s, err)
	config := strings.NewReplacer("DIR", s.gateway.dir, "LISTEN", s.gateway.addr, "PORT", port).Replace(`
http_port LISTEN accel no-vhost defaultsite=127.0.0.1
cache_peer 127.0.0.1 parent PORT 0 no-query originserver
never_direct allow all
http_access allow all
cache deny all
access_log none
cache_log DIR/cache.log
pid_filename DIR/pid
coredump_dir DIR
netdb_filename none
pinger_enable off
max_filedescriptors 1024
shutdown_lifetime 0 seconds
`)
	require.NoError(s, os.Chmod(s.gateway.dir, 0o777)) // as root, Squid changes to another user
	path := s.gateway.configure(config)
	require.NoError(s, os.Chmod(path, 0o644))
	s.gateway.args = append(s.gateway.args, "-N", "-f", path)
	s.url = "http://" + s.gateway.addr
	s.gateway.start()
}

// startCaddy starts Caddy in front of the fake server.
func startCaddy(s *setup, sc scenario) {
	s.gateway = newGateway(s.T, "caddy", freeAddr())
	s.gateway.env = []string{"HOME=" + s.gateway.dir, "XDG_CONFIG_HOME=" + s.gateway.dir, "XDG_DATA_HOME=" + s.gateway.dir}
	tls, scheme := "", "http://"
	if sc.tls {
		tls, scheme = "tls "+certificate+" "+certificate, "https://"
	}
	config := strings.NewReplacer(
		"DIR", s.gateway.dir,
		"URL", scheme+s.gateway.addr,
		"UPSTREAM", s.upstream.addr,
		"TLS", tls,
	).Replace(`
{
	admin off
	auto_https off
	grace_period 1s
	storage file_system DIR/storage
	log {
		level ERROR
	}
}
URL {
	TLS
	reverse_proxy UPSTREAM
}
`)
	s.gateway.args = append(s.gateway.args, "run", "--adapter", "caddyfile", "--config", s.gateway.configure(config))
	s.url = scheme + s.gateway.addr
	s.gateway.start()
}

// Through each gateway, all calls succeed, even while it restarts, and an iteration over a
// changing list is complete.
func TestOtherGateways(t *testing.T) {
	for _, tt := range []struct {
		name   string
		start  func(*setup, scenario)
		config string
		tls    bool
	}{
		{"Apache", startApache, "", false},
		{"Apache, HTTP/2", startApache, "", true},
		{"Varnish", startVarnish, passAccessKeys, false},
		{"Squid", startSquid, "", false},
		{"Caddy", startCaddy, "", false},
		{"Caddy, HTTP/2", startCaddy, "", true},
	} {
		runScenarios(t, tt.start, []scenario{
			{name: tt.name, config: tt.config, tls: tt.tls, load: load{calls: 1000}, netHTTP: true},
			{
				name:   tt.name + ", restart",
				config: tt.config,
				tls:    tt.tls,
				load:   load{calls: 1000},
				retry:  patient,
				closes: true,
				during: func(s *setup) { s.repeat(1, func(int) { s.gateway.restart() }) },
			},
		})
		t.Run(tt.name+", list that changes", func(t *testing.T) {
			s := newSetup(t)
			tt.start(s, scenario{config: tt.config, tls: tt.tls})
			s.iterateWhileListChanges(newClient(t, s.url, s.server), 3000, 2)
		})
	}
}

// A cache must not respond to a rejected key. The built-in rules of Varnish let it respond;
// passAccessKeys prevents that.
func TestVarnishReturnsNoCachedResponseToRejectedKey(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config string
		cached bool
	}{{"access keys passed", passAccessKeys, false}, {"rules of Varnish", "", true}} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSetup(t)
			startVarnish(s, scenario{config: tt.config})
			client := newClient(t, s.url, s.server)
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			_, err := client.MailDetail(ctx, "100")
			require.NoError(t, err)
			s.server.SetAccessKey("another-key")
			_, err = client.MailDetail(ctx, "100")
			assert.Equal(t, tt.cached, err == nil, "%v", err)
		})
	}
}
