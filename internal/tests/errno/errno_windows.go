package errno

import "syscall"

// The errors of a connection. Windows never reports syscall.ECONNREFUSED and syscall.ECONNRESET, which
// package syscall invents.
const (
	ConnRefused = syscall.Errno(10061) // WSAECONNREFUSED
	ConnReset   = syscall.WSAECONNRESET
)
