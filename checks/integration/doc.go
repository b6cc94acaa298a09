// Package integration tests the client behind nginx and HAProxy. It contains only
// tests, which need Linux.
//
//	apt-get install nginx haproxy
//	go -C checks/integration test -v .
//
// Each gateway is started on free ports of the loopback interface, with the
// configuration of its test, and stopped at the end of the test. If a program is
// not installed, its tests are skipped or, if the environment variable CI is true,
// fail.
//
// README.md lists the tests. docs/reliability.md describes the faults for users.
package integration
