package msgpush

import (
	"cmp"
	"slices"

	"example.com/msgpush/internal/call"
)

// An Operation is an operation of the service, or a group of operations that the API document lists as a
// whole. A field is empty if the API document does not specify it.
type Operation struct {
	// Name is the name of the method of [Client], such as "ForwardLogList". It is empty for a group.
	Name string
	// Title is the name in the API document, such as "Rule trigger record list" or "message rule: detail".
	Title string
	// Method is the HTTP method, such as "GET".
	Method string
	// Path is added to the base URL, such as "/api/open/mp/list".
	Path string
}

// Specified reports whether the API document specifies the operation.
func (o Operation) Specified() bool { return o.Path != "" }

// spec describes the request of a call of the operation. It is not marked as idempotent. net/http may still
// send a GET twice: the doc comment of a method that changes something with a GET must say so.
func (o Operation) spec(query, body any) call.Spec {
	return call.Spec{
		Operation: o.Name,
		Method:    o.Method,
		Path:      o.Path,
		Query:     query,
		Body:      body,
	}
}

// String returns the name, or the title of a group.
func (o Operation) String() string { return cmp.Or(o.Name, o.Title) }

// Operations returns the specified operations, the operations that are named only, and the groups whose
// operations are not named (docs/interface.md#named-operations). The caller may change the slice.
func Operations() []Operation {
	specified := []Operation{opMailDetail, opMPList, opForwardRuleList, opForwardLogList}
	groups := []Operation{
		{Title: "access key"}, {Title: "messages"}, {Title: "user"}, {Title: "message tokens"},
		{Title: "groups"}, {Title: "group users"}, {Title: "function settings"}, {Title: "friends"},
		{Title: "preprocessing"}, {Title: "image management"},
		{Title: "companion form product"}, {Title: "companion document product"}, {Title: "companion table product"},
	}
	return slices.Concat(specified, namedOperations, groups)
}
