// Package tests tests the machinery of the internal packages through the exported API of package
// msgpush: the attempts of a call, redaction, networks, and pages of lists that change.
package tests
