package msgpush

import (
	"context"
	"net/http"
)

// AllTokensID is a TokenID that occurs together with a TokenName meaning all tokens
// (docs/interface.md#message-rule).
const AllTokensID int64 = -1

// A ForwardRule is the summary of a message rule (docs/interface.md#message-rule).
type ForwardRule struct {
	ID int64 `json:"id"`
	// TokenID is the id of the message token that the rule applies to, or [AllTokensID].
	TokenID   int64  `json:"tokenId"`
	TokenName string `json:"tokenName"`
	RuleName  string `json:"ruleName"`
	// SourceType and Status are codes whose values the API document does not specify.
	SourceType     int      `json:"sourceType"`
	SourceTypeName string   `json:"sourceTypeName"`
	Status         int      `json:"status"`
	Sort           int      `json:"sort"`
	ConditionExpr  string   `json:"conditionExpr"`
	TargetCount    int      `json:"targetCount"`
	CreateTime     DateTime `json:"createTime"`
}

var opForwardRuleList = Operation{
	Name:   "ForwardRuleList",
	Title:  "Message rule list",
	Method: http.MethodPost,
	Path:   "/api/open/forwardRule/list",
}

// ForwardRuleList returns one page of the list [Client.ForwardRules].
func (c *Client) ForwardRuleList(ctx context.Context, r PageRequest) (*Page[ForwardRule], error) {
	r, err := r.withDefaults(opForwardRuleList)
	if err != nil {
		return nil, err
	}
	return read[Page[ForwardRule]](ctx, c, opForwardRuleList, nil, r)
}

// ForwardRules returns the list of the message rules.
func (c *Client) ForwardRules() List[ForwardRule] {
	return List[ForwardRule]{
		Fetch:   c.ForwardRuleList,
		ID:      func(rule ForwardRule) int64 { return rule.ID },
		Created: func(rule ForwardRule) DateTime { return rule.CreateTime },
	}
}

var opForwardRuleDetail = Operation{Name: "ForwardRuleDetail", Title: "message rule: detail", Method: http.MethodGet}

// ForwardRuleDetail is not implemented. Experimental: will change.
func (c *Client) ForwardRuleDetail(context.Context) error { return opForwardRuleDetail.stub() }

var opForwardRuleCreate = Operation{Name: "ForwardRuleCreate", Title: "message rule: create", Method: http.MethodPost}

// ForwardRuleCreate is not implemented. Experimental: will change.
func (c *Client) ForwardRuleCreate(context.Context) error { return opForwardRuleCreate.stub() }

var opForwardRuleModify = Operation{Name: "ForwardRuleModify", Title: "message rule: modify", Method: http.MethodPost}

// ForwardRuleModify is not implemented. Experimental: will change.
func (c *Client) ForwardRuleModify(context.Context) error { return opForwardRuleModify.stub() }

var opForwardRuleDelete = Operation{Name: "ForwardRuleDelete", Title: "message rule: delete", Method: http.MethodDelete}

// ForwardRuleDelete is not implemented. Experimental: will change.
func (c *Client) ForwardRuleDelete(context.Context) error { return opForwardRuleDelete.stub() }

var opForwardRuleSetEnabled = Operation{
	Name:   "ForwardRuleSetEnabled",
	Title:  "message rule: enable/disable",
	Method: http.MethodGet,
}

// ForwardRuleSetEnabled is not implemented. Experimental: will change.
func (c *Client) ForwardRuleSetEnabled(context.Context) error { return opForwardRuleSetEnabled.stub() }

var opForwardRuleTest = Operation{Name: "ForwardRuleTest", Title: "message rule: test", Method: http.MethodPost}

// ForwardRuleTest is not implemented. Experimental: will change.
func (c *Client) ForwardRuleTest(context.Context) error { return opForwardRuleTest.stub() }

var opForwardRuleMode = Operation{Name: "ForwardRuleMode", Title: "message rule: get mode", Method: http.MethodGet}

// ForwardRuleMode is not implemented. Experimental: will change.
func (c *Client) ForwardRuleMode(context.Context) error { return opForwardRuleMode.stub() }

var opForwardRuleSetMode = Operation{
	Name:   "ForwardRuleSetMode",
	Title:  "message rule: set mode",
	Method: http.MethodGet,
}

// ForwardRuleSetMode is not implemented. Experimental: will change.
func (c *Client) ForwardRuleSetMode(context.Context) error { return opForwardRuleSetMode.stub() }
