package msgpush

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
)

// An MPChannel is an official-account channel (part 2.4 of the API document).
type MPChannel struct {
	ID                 int64    `json:"id"`
	NickName           string   `json:"nickName"`
	HeadImg            string   `json:"headImg"`
	PrincipalName      string   `json:"principalName"`
	AuthorizationAppID string   `json:"authorizationAppid"`
	FuncInfo           FuncInfo `json:"funcInfo"`
	// ServiceType and VerifyType are codes whose values the API document does not
	// specify.
	ServiceType int      `json:"serviceType"`
	VerifyType  int      `json:"verifyType"`
	Alias       string   `json:"alias"`
	UpdateTime  DateTime `json:"updateTime"`
}

func (r MPChannel) recordID() int64 { return r.ID }

// FuncInfo is a list of function ids as the service sends it: separated by
// commas, with a trailing comma, such as "1,2,15,".
type FuncInfo string

// IDs returns the function ids in order, and nil for an empty list. The
// trailing comma may be missing. IDs returns an error if an element is not an integer.
func (f FuncInfo) IDs() ([]int, error) {
	if f == "" {
		return nil, nil
	}
	parts := strings.Split(strings.TrimSuffix(string(f), ","), ",")
	ids := make([]int, len(parts))
	for i, part := range parts {
		id, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("msgpush: FuncInfo.IDs: id %d of %d is %q, not an integer", i+1, len(parts), shorten(part, maxExcerpt))
		}
		ids[i] = id
	}
	return ids, nil
}

var opMPList = Operation{Name: "MPList", Title: "Official-account channel list", Method: http.MethodPost, Path: "/api/open/mp/list"}

// MPList returns one page of the official-account channels (part 4.2 of the API
// document).
func (c *Client) MPList(ctx context.Context, r PageRequest) (*Page[MPChannel], error) {
	return list[MPChannel](ctx, c, opMPList, &r, &r)
}

// MPAll returns an iterator over the records of all pages of MPList. See
// [Lister.All].
func (c *Client) MPAll(ctx context.Context, r PageRequest, opts ...ListOption) iter.Seq2[MPChannel, error] {
	return Lister[MPChannel]{Fetch: c.MPList, ID: MPChannel.recordID}.All(ctx, r, opts...)
}

// MPPages returns an iterator over all pages of MPList. See [Lister.Pages].
func (c *Client) MPPages(ctx context.Context, r PageRequest, opts ...ListOption) iter.Seq2[*Page[MPChannel], error] {
	return Lister[MPChannel]{Fetch: c.MPList, ID: MPChannel.recordID}.Pages(ctx, r, opts...)
}
