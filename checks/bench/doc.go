// Package bench contains only benchmarks of the client and of other clients; see README.md.
package bench
