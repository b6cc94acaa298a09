package msgpush

import (
	"context"
	"iter"
	"net/http"
)

// AllTokensID is a TokenID of a [ForwardRule] that occurs together with a TokenName meaning
// all tokens (part 2.5 of the API document).
const AllTokensID int64 = -1

// A ForwardRule is the summary of a message rule (part 2.5 of the API document).
type ForwardRule struct {
	ID int64 `json:"id"`
	// TokenID is the id of the message token that the rule applies to, or
	// [AllTokensID].
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

func (r ForwardRule) recordID() int64 { return r.ID }

var opForwardRuleList = Operation{Name: "ForwardRuleList", Title: "Message rule list", Method: http.MethodPost, Path: "/api/open/forwardRule/list"}

// ForwardRuleList returns one page of the message rules (part 4.3 of the API
// document).
func (c *Client) ForwardRuleList(ctx context.Context, r PageRequest) (*Page[ForwardRule], error) {
	return list[ForwardRule](ctx, c, opForwardRuleList, &r, &r)
}

// ForwardRuleAll returns an iterator over the records of all pages of
// ForwardRuleList. See [Lister.All].
func (c *Client) ForwardRuleAll(ctx context.Context, r PageRequest, opts ...ListOption) iter.Seq2[ForwardRule, error] {
	return Lister[ForwardRule]{Fetch: c.ForwardRuleList, ID: ForwardRule.recordID}.All(ctx, r, opts...)
}

// ForwardRulePages returns an iterator over all pages of ForwardRuleList. See
// [Lister.Pages].
func (c *Client) ForwardRulePages(ctx context.Context, r PageRequest, opts ...ListOption) iter.Seq2[*Page[ForwardRule], error] {
	return Lister[ForwardRule]{Fetch: c.ForwardRuleList, ID: ForwardRule.recordID}.Pages(ctx, r, opts...)
}
