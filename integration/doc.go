// Package integration tests the client behind real gateways: nginx, HAProxy, tinyproxy,
// toxiproxy, Apache, Varnish, Squid and Caddy. It contains only tests, which need Linux.
//
//	apt-get install nginx haproxy tinyproxy apache2 varnish squid caddy
//	go -C integration test -v ./...
//
// Each gateway is started on free ports of the loopback interface, with the
// configuration of its test, and stopped at the end of the test. If a program is
// not installed, its tests are skipped or, if the environment variable CI is true,
// fail.
//
// docs/reliability.md lists the tests and the results of a run. README.md describes the
// soak, and compares the client with an earlier version.
package integration
