// Package generated has the client and the server that oapi-codegen generates from openapi.json while
// TestGenerated of package contract runs. Otherwise it is empty.
package generated

import _ "github.com/oapi-codegen/runtime" // the generated code imports it
