package msgpush

import (
	"context"
	"net/http"
)

// The API document only names the operations in this file (parts 4.5 and 5).
var (
	opForwardRuleDetail     = Operation{Group: "message rule", Name: "detail", Method: http.MethodGet}
	opForwardRuleCreate     = Operation{Group: "message rule", Name: "create", Method: http.MethodPost}
	opForwardRuleModify     = Operation{Group: "message rule", Name: "modify", Method: http.MethodPost}
	opForwardRuleDelete     = Operation{Group: "message rule", Name: "delete", Method: http.MethodDelete}
	opForwardRuleSetEnabled = Operation{Group: "message rule", Name: "enable/disable", Method: http.MethodGet}
	opForwardRuleTest       = Operation{Group: "message rule", Name: "test", Method: http.MethodPost}
	opForwardRuleMode       = Operation{Group: "message rule", Name: "get mode", Method: http.MethodGet}
	opForwardRuleSetMode    = Operation{Group: "message rule", Name: "set mode", Method: http.MethodGet}
	opForwardLogDetail      = Operation{Group: "trigger record", Name: "detail", Method: http.MethodGet}
	opWebhookList           = Operation{Group: "webhook channel", Name: "list", Method: http.MethodPost}
	opWebhookDetail         = Operation{Group: "webhook channel", Name: "detail", Method: http.MethodGet}
	opWebhookCreate         = Operation{Group: "webhook channel", Name: "create", Method: http.MethodPost}
	opWebhookModify         = Operation{Group: "webhook channel", Name: "modify", Method: http.MethodPost}
	opEnterpriseAppList     = Operation{Group: "enterprise application channel", Name: "list", Method: http.MethodPost}
	opMailList              = Operation{Group: "mail channel", Name: "list", Method: http.MethodPost}
	opAccessKeyObtain       = Operation{Group: "access key", Name: "obtain"}
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
