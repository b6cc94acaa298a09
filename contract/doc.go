// Package contract has tests only. They check openapi.json, the recorded bodies in
// testdata, the client and the fake server against each other: with kin-openapi, and
// with a client and a server that oapi-codegen generates from openapi.json.
package contract

//go:generate go tool oapi-codegen -config generated/oapi-codegen.yaml -o generated/generated.go ../openapi.json
