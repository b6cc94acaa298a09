// Package tests has the tests that go through a network, are random or count allocations, and the tests of
// the retry quota and of the steps of a call.
package tests
