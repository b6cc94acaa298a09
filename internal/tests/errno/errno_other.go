//go:build !windows

package errno

import "syscall"

// The errors of a connection.
const (
	ConnRefused = syscall.ECONNREFUSED
	ConnReset   = syscall.ECONNRESET
)
