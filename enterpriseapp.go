package msgpush

import (
	"context"
	"net/http"
)

var opEnterpriseAppList = Operation{Group: "enterprise application channel", Name: "list", Method: http.MethodPost}

// EnterpriseAppList is not implemented: the document gives only its name and
// method. It returns an [*UnimplementedError].
func (c *Client) EnterpriseAppList(context.Context) error {
	return &UnimplementedError{opEnterpriseAppList}
}
