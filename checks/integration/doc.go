// Package integration tests the client behind nginx and HAProxy; see README.md. It contains only tests, which
// need Linux.
package integration
