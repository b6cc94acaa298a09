// Package errno has the errors of connections that the system reports under another number than
// package syscall on some systems.
package errno
