// Package recorded compares testdata/api.txt, openapi.json, the tables of docs/interface.md and the
// list of methods in README.md with the code, from which most of them follows. To write them:
//
//	go test ./internal/tests/recorded -update
package recorded
