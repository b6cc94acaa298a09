package msgpush

import (
	"slices"
	"strings"
)

// An Operation is an operation of the service or, without a Name, a group of
// operations that the API document lists as a whole. A field is empty if the API
// document does not specify it.
type Operation struct {
	// Group is the subject, such as "message rule".
	Group string
	// Name is the action, such as "list". It is empty for a group.
	Name string
	// Method is the HTTP method.
	Method string
	// Path is the path relative to the base URL.
	Path string
}

// Specified reports whether the API document specifies how to call the operation.
// This package implements the specified operations.
func (o Operation) Specified() bool { return o.Path != "" }

// String returns the group and the name, such as "message rule list".
func (o Operation) String() string { return strings.TrimSuffix(o.Group+" "+o.Name, " ") }

// Operations returns the specified operations (parts 4.1 to 4.4 of the API
// document), then the operations that are named only (parts 4.5 and 5), then the
// groups that part 4.5 lists without their operations. The caller may change the
// slice.
func Operations() []Operation {
	all := []Operation{
		opMailDetail, opMPList, opForwardRuleList, opForwardLogList,

		opForwardRuleDetail, opForwardRuleCreate, opForwardRuleModify, opForwardRuleDelete,
		opForwardRuleSetEnabled, opForwardRuleTest, opForwardRuleMode, opForwardRuleSetMode,
		opForwardLogDetail,
		opWebhookList, opWebhookDetail, opWebhookCreate, opWebhookModify,
		opEnterpriseAppList, opMailList, opAccessKeyObtain,

		{Group: "access key"}, {Group: "messages"}, {Group: "user"}, {Group: "message tokens"},
		{Group: "groups"}, {Group: "group users"}, {Group: "function settings"}, {Group: "friends"},
		{Group: "preprocessing"}, {Group: "image management"},
		{Group: "companion form product"}, {Group: "companion document product"}, {Group: "companion table product"},
	}
	slices.SortStableFunc(all, func(a, b Operation) int { return min(1, len(b.Path)) - min(1, len(a.Path)) })
	return all
}
