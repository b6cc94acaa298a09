//go:build !race

package msgpush_test

const raceEnabled = false
