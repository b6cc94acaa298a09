package msgpush

import (
	"context"
	"net/http"
)

// UnimplementedOperations has a method for each operation that the API document only names
// (docs/interface.md#named-operations). The methods send nothing and return an [*UnimplementedError].
//
// [Client] embeds it, so that a program can call client.AccessKeyObtain while the documentation of Client
// lists only methods that send a request. When the API document specifies an operation, its method moves to
// Client and gets arguments and a result.
type UnimplementedOperations struct{}

var opForwardRuleDetail = Operation{Name: "ForwardRuleDetail", Title: "message rule: detail", Method: http.MethodGet}

// ForwardRuleDetail is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleDetail(context.Context) error {
	return opForwardRuleDetail.stub()
}

var opForwardRuleCreate = Operation{Name: "ForwardRuleCreate", Title: "message rule: create", Method: http.MethodPost}

// ForwardRuleCreate is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleCreate(context.Context) error {
	return opForwardRuleCreate.stub()
}

var opForwardRuleModify = Operation{Name: "ForwardRuleModify", Title: "message rule: modify", Method: http.MethodPost}

// ForwardRuleModify is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleModify(context.Context) error {
	return opForwardRuleModify.stub()
}

var opForwardRuleDelete = Operation{Name: "ForwardRuleDelete", Title: "message rule: delete", Method: http.MethodDelete}

// ForwardRuleDelete is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleDelete(context.Context) error {
	return opForwardRuleDelete.stub()
}

var opForwardRuleSetEnabled = Operation{
	Name:   "ForwardRuleSetEnabled",
	Title:  "message rule: enable/disable",
	Method: http.MethodGet,
}

// ForwardRuleSetEnabled is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleSetEnabled(context.Context) error {
	return opForwardRuleSetEnabled.stub()
}

var opForwardRuleTest = Operation{Name: "ForwardRuleTest", Title: "message rule: test", Method: http.MethodPost}

// ForwardRuleTest is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleTest(context.Context) error {
	return opForwardRuleTest.stub()
}

var opForwardRuleMode = Operation{Name: "ForwardRuleMode", Title: "message rule: get mode", Method: http.MethodGet}

// ForwardRuleMode is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleMode(context.Context) error {
	return opForwardRuleMode.stub()
}

var opForwardRuleSetMode = Operation{
	Name:   "ForwardRuleSetMode",
	Title:  "message rule: set mode",
	Method: http.MethodGet,
}

// ForwardRuleSetMode is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardRuleSetMode(context.Context) error {
	return opForwardRuleSetMode.stub()
}

var opForwardLogDetail = Operation{Name: "ForwardLogDetail", Title: "trigger record: detail", Method: http.MethodGet}

// ForwardLogDetail is not implemented. Experimental: will change.
func (UnimplementedOperations) ForwardLogDetail(context.Context) error {
	return opForwardLogDetail.stub()
}

var opWebhookList = Operation{Name: "WebhookList", Title: "webhook channel: list", Method: http.MethodPost}

// WebhookList is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookList(context.Context) error { return opWebhookList.stub() }

var opWebhookDetail = Operation{Name: "WebhookDetail", Title: "webhook channel: detail", Method: http.MethodGet}

// WebhookDetail is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookDetail(context.Context) error { return opWebhookDetail.stub() }

var opWebhookCreate = Operation{Name: "WebhookCreate", Title: "webhook channel: create", Method: http.MethodPost}

// WebhookCreate is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookCreate(context.Context) error { return opWebhookCreate.stub() }

var opWebhookModify = Operation{Name: "WebhookModify", Title: "webhook channel: modify", Method: http.MethodPost}

// WebhookModify is not implemented. Experimental: will change.
func (UnimplementedOperations) WebhookModify(context.Context) error { return opWebhookModify.stub() }

var opEnterpriseAppList = Operation{
	Name:   "EnterpriseAppList",
	Title:  "enterprise application channel: list",
	Method: http.MethodPost,
}

// EnterpriseAppList is not implemented. Experimental: will change.
func (UnimplementedOperations) EnterpriseAppList(context.Context) error {
	return opEnterpriseAppList.stub()
}

var opMailList = Operation{Name: "MailList", Title: "mail channel: list", Method: http.MethodPost}

// MailList is not implemented. Experimental: will change.
func (UnimplementedOperations) MailList(context.Context) error { return opMailList.stub() }

var opAccessKeyObtain = Operation{Name: "AccessKeyObtain", Title: "access key: obtain"}

// AccessKeyObtain is not implemented. Experimental: will change.
func (UnimplementedOperations) AccessKeyObtain(context.Context) error {
	return opAccessKeyObtain.stub()
}
