//go:build race

package fleet_test

// scale divides the load of throughput tests. fleetSize is the number of replicas
// in tests that fail if the store responds later than 1 s.
const scale, fleetSize = 10, 5
