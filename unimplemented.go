package msgpush

import (
	"context"
	"net/http"
	"slices"
)

// namedOperations are the operations of the methods below.
var namedOperations = []Operation{
	{Name: "ForwardRuleDetail", Title: "message rule: detail", Method: http.MethodGet},
	{Name: "ForwardRuleCreate", Title: "message rule: create", Method: http.MethodPost},
	{Name: "ForwardRuleModify", Title: "message rule: modify", Method: http.MethodPost},
	{Name: "ForwardRuleDelete", Title: "message rule: delete", Method: http.MethodDelete},
	{Name: "ForwardRuleSetEnabled", Title: "message rule: enable/disable", Method: http.MethodGet},
	{Name: "ForwardRuleTest", Title: "message rule: test", Method: http.MethodPost},
	{Name: "ForwardRuleMode", Title: "message rule: get mode", Method: http.MethodGet},
	{Name: "ForwardRuleSetMode", Title: "message rule: set mode", Method: http.MethodGet},
	{Name: "ForwardLogDetail", Title: "trigger record: detail", Method: http.MethodGet},
	{Name: "WebhookList", Title: "webhook channel: list", Method: http.MethodPost},
	{Name: "WebhookDetail", Title: "webhook channel: detail", Method: http.MethodGet},
	{Name: "WebhookCreate", Title: "webhook channel: create", Method: http.MethodPost},
	{Name: "WebhookModify", Title: "webhook channel: modify", Method: http.MethodPost},
	{Name: "EnterpriseAppList", Title: "enterprise application channel: list", Method: http.MethodPost},
	{Name: "MailList", Title: "mail channel: list", Method: http.MethodPost},
	{Name: "AccessKeyObtain", Title: "access key: obtain"},
}

// stub returns the error of the method of an operation.
func stub(name string) error {
	i := slices.IndexFunc(namedOperations, func(op Operation) bool { return op.Name == name })
	return &UnimplementedError{namedOperations[i]}
}

// UnimplementedOperations has a method for each operation that the API document only names
// (docs/interface.md#named-operations). The methods send nothing and return an [*UnimplementedError].
//
// [Client] embeds it, so that a program can call client.AccessKeyObtain while the documentation of Client
// lists only methods that send a request. When the API document specifies an operation, its method moves to
// Client and gets arguments and a result.
type UnimplementedOperations struct{}

// ForwardRuleDetail is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleDetail(context.Context) error {
	return stub("ForwardRuleDetail")
}

// ForwardRuleCreate is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleCreate(context.Context) error {
	return stub("ForwardRuleCreate")
}

// ForwardRuleModify is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleModify(context.Context) error {
	return stub("ForwardRuleModify")
}

// ForwardRuleDelete is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleDelete(context.Context) error {
	return stub("ForwardRuleDelete")
}

// ForwardRuleSetEnabled is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleSetEnabled(context.Context) error {
	return stub("ForwardRuleSetEnabled")
}

// ForwardRuleTest is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleTest(context.Context) error { return stub("ForwardRuleTest") }

// ForwardRuleMode is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleMode(context.Context) error { return stub("ForwardRuleMode") }

// ForwardRuleSetMode is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleSetMode(context.Context) error {
	return stub("ForwardRuleSetMode")
}

// ForwardLogDetail is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardLogDetail(context.Context) error {
	return stub("ForwardLogDetail")
}

// WebhookList is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookList(context.Context) error { return stub("WebhookList") }

// WebhookDetail is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookDetail(context.Context) error { return stub("WebhookDetail") }

// WebhookCreate is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookCreate(context.Context) error { return stub("WebhookCreate") }

// WebhookModify is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookModify(context.Context) error { return stub("WebhookModify") }

// EnterpriseAppList is not implemented. Experimental: will change.
func (UnimplementedOperations) EnterpriseAppList(context.Context) error {
	return stub("EnterpriseAppList")
}

// MailList is not implemented. Experimental: will change.
func (UnimplementedOperations) MailList(context.Context) error { return stub("MailList") }

// AccessKeyObtain is not implemented. Experimental: will change.
func (UnimplementedOperations) AccessKeyObtain(context.Context) error { return stub("AccessKeyObtain") }
