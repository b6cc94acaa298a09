//go:build race

package fleet_test

// scale divides the load of tests of the throughput.
const scale = 10
