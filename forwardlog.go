package msgpush

import (
	"context"
	"encoding/json"
	"net/http"
)

// A ForwardLog is a trigger record: the evaluation of a message rule (docs/interface.md#trigger-record).
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

// A ForwardLogRequest requests one page of the trigger records that match Params.
type ForwardLogRequest struct {
	PageRequest
	Params ForwardLogParams `json:"params"`
}

// ForwardLogParams filters the trigger records. A nil field does not filter, and a pointer to 0 filters for
// 0: write &rule.ID or new(int64(7)).
type ForwardLogParams struct {
	// RuleID selects the records of one rule.
	RuleID *int64 `json:"ruleId,omitempty"`
	// MatchResult selects the records with one match result code.
	MatchResult *int `json:"matchResult,omitempty"`
}

var opForwardLogList = Operation{
	Name:   "ForwardLogList",
	Title:  "Rule trigger record list",
	Method: http.MethodPost,
	Path:   "/api/open/forwardLog/list",
}

// ForwardLogList returns one page of the list. [Client.ForwardLogPager] reads all pages. If some records
// cannot be decoded, it returns the page with the others, and also a [*DecodeError].
func (c *Client) ForwardLogList(ctx context.Context, r ForwardLogRequest) (*Page[ForwardLog], error) {
	var err error
	r.PageRequest, err = r.withDefaults(opForwardLogList)
	if err != nil {
		return nil, err
	}
	return read[Page[ForwardLog]](ctx, c, opForwardLogList, nil, r)
}

// ForwardLogPager returns a pager of the trigger records that match params.
func (c *Client) ForwardLogPager(params ForwardLogParams) Pager[ForwardLog] {
	if params.RuleID != nil { // a copy, since the caller may change the value
		params.RuleID = new(*params.RuleID)
	}
	if params.MatchResult != nil {
		params.MatchResult = new(*params.MatchResult)
	}
	filter, _ := json.Marshal(params) // cannot fail
	return Pager[ForwardLog]{
		Name: c.listName(opForwardLogList, string(filter)),
		Fetch: func(ctx context.Context, r PageRequest) (*Page[ForwardLog], error) {
			return c.ForwardLogList(ctx, ForwardLogRequest{r, params})
		},
		ID:      func(record ForwardLog) int64 { return record.ID },
		Created: func(record ForwardLog) DateTime { return record.CreateTime },
	}
}
