package msgpush

import (
	"context"
	"net/http"
)

// The API document only names the operations in this file (parts 4.5 and 5).
var (
	opAccessKeyObtain   = Operation{Group: "access key", Name: "obtain"}
	opEnterpriseAppList = Operation{Group: "enterprise application channel", Name: "list", Method: http.MethodPost}
	opWebhookList       = Operation{Group: "webhook channel", Name: "list", Method: http.MethodPost}
	opWebhookDetail     = Operation{Group: "webhook channel", Name: "detail", Method: http.MethodGet}
	opWebhookCreate     = Operation{Group: "webhook channel", Name: "create", Method: http.MethodPost}
	opWebhookModify     = Operation{Group: "webhook channel", Name: "modify", Method: http.MethodPost}
)

// AccessKeyObtain is not implemented and returns an [*UnimplementedError]: the API
// document gives only its name (part 5). Experimental: its signature will change.
func (c *Client) AccessKeyObtain(context.Context) error {
	return &UnimplementedError{opAccessKeyObtain}
}

// EnterpriseAppList is not implemented and returns an [*UnimplementedError]: the
// API document only names it. Experimental: its signature will change.
func (c *Client) EnterpriseAppList(context.Context) error {
	return &UnimplementedError{opEnterpriseAppList}
}

// WebhookList is not implemented and returns an [*UnimplementedError]: the API
// document only names it. Experimental: its signature will change.
func (c *Client) WebhookList(context.Context) error { return &UnimplementedError{opWebhookList} }

// WebhookDetail is not implemented and returns an [*UnimplementedError]: the API
// document only names it. Experimental: its signature will change.
func (c *Client) WebhookDetail(context.Context) error { return &UnimplementedError{opWebhookDetail} }

// WebhookCreate is not implemented and returns an [*UnimplementedError]: the API
// document only names it. Experimental: its signature will change.
func (c *Client) WebhookCreate(context.Context) error { return &UnimplementedError{opWebhookCreate} }

// WebhookModify is not implemented and returns an [*UnimplementedError]: the API
// document only names it. Experimental: its signature will change.
func (c *Client) WebhookModify(context.Context) error { return &UnimplementedError{opWebhookModify} }
