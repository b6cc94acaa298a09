//go:build !windows

// Package errno has error numbers of connections that differ on Windows.
package errno

import "syscall"

// The errors of a connection.
const (
	ConnRefused = syscall.ECONNREFUSED
	ConnReset   = syscall.ECONNRESET
)
