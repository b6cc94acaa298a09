package msgpush

import (
	"context"
	"net/http"
)

// The API document only names the operations in this file (parts 4.5 and 5).
var (
	opForwardRuleDetail     = Operation{Name: "ForwardRuleDetail", Title: "message rule: detail", Method: http.MethodGet}
	opForwardRuleCreate     = Operation{Name: "ForwardRuleCreate", Title: "message rule: create", Method: http.MethodPost}
	opForwardRuleModify     = Operation{Name: "ForwardRuleModify", Title: "message rule: modify", Method: http.MethodPost}
	opForwardRuleDelete     = Operation{Name: "ForwardRuleDelete", Title: "message rule: delete", Method: http.MethodDelete}
	opForwardRuleSetEnabled = Operation{Name: "ForwardRuleSetEnabled", Title: "message rule: enable/disable", Method: http.MethodGet}
	opForwardRuleTest       = Operation{Name: "ForwardRuleTest", Title: "message rule: test", Method: http.MethodPost}
	opForwardRuleMode       = Operation{Name: "ForwardRuleMode", Title: "message rule: get mode", Method: http.MethodGet}
	opForwardRuleSetMode    = Operation{Name: "ForwardRuleSetMode", Title: "message rule: set mode", Method: http.MethodGet}
	opForwardLogDetail      = Operation{Name: "ForwardLogDetail", Title: "trigger record: detail", Method: http.MethodGet}
	opWebhookList           = Operation{Name: "WebhookList", Title: "webhook channel: list", Method: http.MethodPost}
	opWebhookDetail         = Operation{Name: "WebhookDetail", Title: "webhook channel: detail", Method: http.MethodGet}
	opWebhookCreate         = Operation{Name: "WebhookCreate", Title: "webhook channel: create", Method: http.MethodPost}
	opWebhookModify         = Operation{Name: "WebhookModify", Title: "webhook channel: modify", Method: http.MethodPost}
	opEnterpriseAppList     = Operation{Name: "EnterpriseAppList", Title: "enterprise application channel: list", Method: http.MethodPost}
	opMailList              = Operation{Name: "MailList", Title: "mail channel: list", Method: http.MethodPost}
	opAccessKeyObtain       = Operation{Name: "AccessKeyObtain", Title: "access key: obtain"}
)

// stub returns the error of a method that is not implemented.
func (o Operation) stub() error { return &UnimplementedError{o} }

// ForwardRuleDetail is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleDetail(context.Context) error { return opForwardRuleDetail.stub() }

// ForwardRuleCreate is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleCreate(context.Context) error { return opForwardRuleCreate.stub() }

// ForwardRuleModify is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleModify(context.Context) error { return opForwardRuleModify.stub() }

// ForwardRuleDelete is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleDelete(context.Context) error { return opForwardRuleDelete.stub() }

// ForwardRuleSetEnabled is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleSetEnabled(context.Context) error { return opForwardRuleSetEnabled.stub() }

// ForwardRuleTest is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleTest(context.Context) error { return opForwardRuleTest.stub() }

// ForwardRuleMode is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleMode(context.Context) error { return opForwardRuleMode.stub() }

// ForwardRuleSetMode is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardRuleSetMode(context.Context) error { return opForwardRuleSetMode.stub() }

// ForwardLogDetail is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) ForwardLogDetail(context.Context) error { return opForwardLogDetail.stub() }

// WebhookList is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) WebhookList(context.Context) error { return opWebhookList.stub() }

// WebhookDetail is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) WebhookDetail(context.Context) error { return opWebhookDetail.stub() }

// WebhookCreate is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) WebhookCreate(context.Context) error { return opWebhookCreate.stub() }

// WebhookModify is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) WebhookModify(context.Context) error { return opWebhookModify.stub() }

// EnterpriseAppList is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) EnterpriseAppList(context.Context) error { return opEnterpriseAppList.stub() }

// MailList is not implemented: it returns an [*UnimplementedError].
// Experimental: its signature will change.
func (c *Client) MailList(context.Context) error { return opMailList.stub() }

// AccessKeyObtain is not implemented: it returns an [*UnimplementedError]. The API
// document gives only its name (part 5). Experimental: its signature will change.
func (c *Client) AccessKeyObtain(context.Context) error { return opAccessKeyObtain.stub() }
