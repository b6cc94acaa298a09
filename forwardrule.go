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

// ForwardRuleList returns one page of the list. [Client.ForwardRulePager] reads all pages. If some records
// cannot be decoded, it returns the page with the others, and also a [*DecodeError].
func (c *Client) ForwardRuleList(ctx context.Context, r PageRequest) (*Page[ForwardRule], error) {
	r, err := r.withDefaults(opForwardRuleList)
	if err != nil {
		return nil, err
	}
	return read[Page[ForwardRule]](ctx, c, opForwardRuleList, nil, r)
}

// ForwardRulePager returns a pager of the message rules.
func (c *Client) ForwardRulePager() Pager[ForwardRule] {
	return Pager[ForwardRule]{
		Name:    c.listName(opForwardRuleList, ""),
		Fetch:   c.ForwardRuleList,
		ID:      func(rule ForwardRule) int64 { return rule.ID },
		Created: func(rule ForwardRule) DateTime { return rule.CreateTime },
	}
}
