package msgpush

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"example.com/msgpush/internal/redact"
)

// An MPChannel is an official-account channel (docs/interface.md#official-account-channel).
type MPChannel struct {
	ID                 int64    `json:"id"`
	NickName           string   `json:"nickName"`
	HeadImg            string   `json:"headImg"`
	PrincipalName      string   `json:"principalName"`
	AuthorizationAppID string   `json:"authorizationAppid"`
	FuncInfo           FuncInfo `json:"funcInfo"`
	// ServiceType and VerifyType are codes whose values the API document does not specify.
	ServiceType int      `json:"serviceType"`
	VerifyType  int      `json:"verifyType"`
	Alias       string   `json:"alias"`
	UpdateTime  DateTime `json:"updateTime"`
}

// FuncInfo is a comma-separated list of function ids, with a trailing comma, such as "1,2,15,".
type FuncInfo string

// IDs returns the function ids in order, or an error if one is not an integer.
func (f FuncInfo) IDs() ([]int, error) {
	if f == "" {
		return nil, nil
	}
	parts := strings.Split(strings.TrimSuffix(string(f), ","), ",")
	ids := make([]int, len(parts))
	for i, part := range parts {
		id, err := strconv.Atoi(part)
		if err != nil {
			part = redact.Shorten(part, maxExcerpt)
			return nil, fmt.Errorf("msgpush: FuncInfo.IDs: id %d of %d is %q, not an integer", i+1, len(parts), part)
		}
		ids[i] = id
	}
	return ids, nil
}

var opMPList = Operation{
	Name:   "MPList",
	Title:  "Official-account channel list",
	Method: http.MethodPost,
	Path:   "/api/open/mp/list",
}

// MPList returns one page of the list. [Client.MPPager] reads all pages. If some records cannot be decoded,
// it returns the page with the others, and also a [*DecodeError].
func (c *Client) MPList(ctx context.Context, r PageRequest) (*Page[MPChannel], error) {
	r, err := r.withDefaults(opMPList)
	if err != nil {
		return nil, err
	}
	return read[Page[MPChannel]](ctx, c, opMPList, nil, r)
}

// MPPager returns a pager of the official-account channels.
func (c *Client) MPPager() Pager[MPChannel] {
	return Pager[MPChannel]{
		Name:  c.listName(opMPList, ""),
		Fetch: c.MPList,
		ID:    func(channel MPChannel) int64 { return channel.ID },
	}
}
