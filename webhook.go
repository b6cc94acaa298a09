package msgpush

import (
	"context"
	"net/http"
)

var opWebhookList = Operation{Name: "WebhookList", Title: "webhook channel: list", Method: http.MethodPost}

// WebhookList is not implemented. Experimental: will change.
func (c *Client) WebhookList(context.Context) error { return opWebhookList.stub() }

var opWebhookDetail = Operation{Name: "WebhookDetail", Title: "webhook channel: detail", Method: http.MethodGet}

// WebhookDetail is not implemented. Experimental: will change.
func (c *Client) WebhookDetail(context.Context) error { return opWebhookDetail.stub() }

var opWebhookCreate = Operation{Name: "WebhookCreate", Title: "webhook channel: create", Method: http.MethodPost}

// WebhookCreate is not implemented. Experimental: will change.
func (c *Client) WebhookCreate(context.Context) error { return opWebhookCreate.stub() }

var opWebhookModify = Operation{Name: "WebhookModify", Title: "webhook channel: modify", Method: http.MethodPost}

// WebhookModify is not implemented. Experimental: will change.
func (c *Client) WebhookModify(context.Context) error { return opWebhookModify.stub() }
