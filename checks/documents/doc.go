// Package documents contains only tests. They run the Go code of README.md and docs, and
// check that the documents leave out no operation, example, dependency or version.
package documents
