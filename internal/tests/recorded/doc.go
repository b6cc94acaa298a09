// Package recorded compares testdata/api.txt and openapi.json with the code, from which most of them
// follows. To write them:
//
//	go test ./internal/tests/recorded -update
package recorded
