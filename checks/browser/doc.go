// Package browser tests the client, compiled to WebAssembly, in node and in Chromium. net/http
// sends requests there with the function fetch of the host.
//
// The tests of client_test.go run in the host. host_test.go compiles them, starts the services
// that they use, and runs them.
package browser
