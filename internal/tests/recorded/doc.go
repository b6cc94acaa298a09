// Package recorded compares testdata/api.txt, openapi.json and the tables of docs/interface.md with
// the code, from which most of them follows. To write them:
//
//	go test ./internal/tests/recorded -update
package recorded
