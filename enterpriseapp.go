package msgpush

import (
	"context"
	"net/http"
)

var opEnterpriseAppList = Operation{
	Name:   "EnterpriseAppList",
	Title:  "enterprise application channel: list",
	Method: http.MethodPost,
}

// EnterpriseAppList is not implemented. Experimental: will change.
func (c *Client) EnterpriseAppList(context.Context) error { return opEnterpriseAppList.stub() }
