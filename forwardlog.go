package msgpush

import (
	"context"
	"iter"
	"net/http"
)

// A ForwardLog is a trigger record: the evaluation of a message rule
// (part 2.6 of the API document).
type ForwardLog struct {
	ID       int64  `json:"id"`
	RuleID   int64  `json:"ruleId"`
	RuleName string `json:"ruleName"`
	// SourceType is a code whose values the API document does not specify.
	SourceType     int    `json:"sourceType"`
	SourceTypeName string `json:"sourceTypeName"`
	// RequestIP may be masked in part, so it need not be an IP address.
	RequestIP string `json:"requestIp"`
	// MatchResult is a code whose values the API document does not specify.
	MatchResult     int    `json:"matchResult"`
	MatchResultName string `json:"matchResultName"`
	// ShortCodes may be masked in part.
	ShortCodes string `json:"shortCodes"`
	// ErrorMessage is empty if there was no error.
	ErrorMessage string   `json:"errorMessage"`
	CreateTime   DateTime `json:"createTime"`
}

func (r ForwardLog) recordID() int64 { return r.ID }

// A ForwardLogRequest requests one page of the trigger records that match
// Params.
type ForwardLogRequest struct {
	PageRequest
	Params ForwardLogParams `json:"params"`
}

// ForwardLogParams filters the trigger records. A nil field does not filter,
// and a pointer to 0 filters for 0: write &rule.ID or new(int64(7)) for RuleID,
// new(0) for MatchResult.
type ForwardLogParams struct {
	// RuleID selects the records of one rule.
	RuleID *int64 `json:"ruleId,omitempty"`
	// MatchResult selects the records with one match result code.
	MatchResult *int `json:"matchResult,omitempty"`
}

var opForwardLogList = Operation{Name: "ForwardLogList", Title: "Rule trigger record list", Method: http.MethodPost, Path: "/api/open/forwardLog/list"}

// ForwardLogList returns one page of the trigger records (part 4.4 of the API
// document).
func (c *Client) ForwardLogList(ctx context.Context, r ForwardLogRequest) (*Page[ForwardLog], error) {
	return list[ForwardLog](ctx, c, opForwardLogList, &r.PageRequest, &r)
}

// ForwardLogAll returns an iterator over the records of all pages of
// ForwardLogList. See [Lister.All].
func (c *Client) ForwardLogAll(ctx context.Context, r ForwardLogRequest, opts ...ListOption) iter.Seq2[ForwardLog, error] {
	return c.forwardLogs(r).All(ctx, r.PageRequest, opts...)
}

// ForwardLogPages returns an iterator over all pages of ForwardLogList. See
// [Lister.Pages].
func (c *Client) ForwardLogPages(ctx context.Context, r ForwardLogRequest, opts ...ListOption) iter.Seq2[*Page[ForwardLog], error] {
	return c.forwardLogs(r).Pages(ctx, r.PageRequest, opts...)
}

// ForwardLogFollow returns an iterator over the records of ForwardLogList and then over
// each new record. See [Lister.Follow].
func (c *Client) ForwardLogFollow(ctx context.Context, r ForwardLogRequest, opts ...FollowOption) iter.Seq2[ForwardLog, error] {
	return c.forwardLogs(r).Follow(ctx, r.PageRequest, opts...)
}

// ForwardLogFollowPages is like ForwardLogFollow, but yields pages. See
// [Lister.FollowPages].
func (c *Client) ForwardLogFollowPages(ctx context.Context, r ForwardLogRequest, opts ...FollowOption) iter.Seq2[*Page[ForwardLog], error] {
	return c.forwardLogs(r).FollowPages(ctx, r.PageRequest, opts...)
}

// forwardLogs returns a Lister with the filter of r. It copies the filter, since the caller may
// change what its pointers point to.
func (c *Client) forwardLogs(r ForwardLogRequest) Lister[ForwardLog] {
	if r.Params.RuleID != nil {
		r.Params.RuleID = new(*r.Params.RuleID)
	}
	if r.Params.MatchResult != nil {
		r.Params.MatchResult = new(*r.Params.MatchResult)
	}
	fetch := func(ctx context.Context, page PageRequest) (*Page[ForwardLog], error) {
		r := r
		r.PageRequest = page
		return c.ForwardLogList(ctx, r)
	}
	return Lister[ForwardLog]{Fetch: fetch, ID: ForwardLog.recordID}
}
