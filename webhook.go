package msgpush

import (
	"context"
	"net/http"
)

var (
	opWebhookList   = Operation{Group: "webhook channel", Name: "list", Method: http.MethodPost}
	opWebhookDetail = Operation{Group: "webhook channel", Name: "detail", Method: http.MethodGet}
	opWebhookCreate = Operation{Group: "webhook channel", Name: "create", Method: http.MethodPost}
	opWebhookModify = Operation{Group: "webhook channel", Name: "modify", Method: http.MethodPost}
)

// WebhookList is not implemented: the document gives only its name and
// method. It returns an [*UnimplementedError].
func (c *Client) WebhookList(context.Context) error {
	return &UnimplementedError{opWebhookList}
}

// WebhookDetail is not implemented: the document gives only its name and
// method. It returns an [*UnimplementedError].
func (c *Client) WebhookDetail(context.Context) error {
	return &UnimplementedError{opWebhookDetail}
}

// WebhookCreate is not implemented: the document gives only its name and
// method. It returns an [*UnimplementedError].
func (c *Client) WebhookCreate(context.Context) error {
	return &UnimplementedError{opWebhookCreate}
}

// WebhookModify is not implemented: the document gives only its name and
// method. It returns an [*UnimplementedError].
func (c *Client) WebhookModify(context.Context) error {
	return &UnimplementedError{opWebhookModify}
}
