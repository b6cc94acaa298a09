//go:build race

package fleet_test

// scale divides the load of tests of the throughput. fleetSize is the number of
// replicas where a starved one would fail, since the store must respond within 1 s.
const scale, fleetSize = 10, 5
