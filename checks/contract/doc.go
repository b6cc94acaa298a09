// Package contract contains only tests. They check openapi.json, the bodies in
// testdata, the client and the fake server against each other. They use kin-openapi,
// and a client and a server that oapi-codegen generates from openapi.json.
package contract
