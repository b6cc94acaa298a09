// Package errno has error numbers of connections that differ on Windows.
package errno
