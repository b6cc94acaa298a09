// Package msgpush is a client for the open management interface of a message
// push service: JSON over HTTP, authenticated by an access key.
//
// A [Client] has one method for each operation that the document of the
// interface specifies:
//
//   - [Client.MailDetail]: mail channel detail
//   - [Client.MPList]: official-account channel list
//   - [Client.ForwardRuleList]: message rule list
//   - [Client.ForwardLogList]: rule trigger record list
//
// The operations that the document only names have a method each that sends
// nothing and returns an [UnimplementedError]; [Operations] lists them all.
// Whoever knows more about one of them than the document can send it with
// [Call].
//
// # Errors
//
// A call fails in one of three ways, told apart with [errors.As]:
//
//   - [*APIError]: the service answered and refused
//   - [*DecodeError]: the service answered and cannot be understood
//   - [*url.Error]: no whole answer came; its cause says why, and [errors.Is]
//     reaches [context.Canceled] and [context.DeadlineExceeded]
//
// Any other error is about the arguments of the call, and nothing was sent.
//
// # What the document leaves open
//
// The document gives no meaning to any code but 200, no bounds, no time zone
// and no limits, and this package adds none of its own. Where it must choose,
// as with [DefaultPageSize], it says so.
package msgpush

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Version is the version of this package, sent in the User-Agent header.
const Version = "0.1.0"

// A Client calls the operations of one service with one access key. Make it
// with [NewClient]; the zero Client sends nothing and returns an error from
// every call. It is safe for concurrent use, and is best made once and shared.
type Client struct {
	baseURL   string // without a slash at its end
	http      *http.Client
	userAgent string

	// A function, because fmt prints the fields of a struct that it meets
	// without asking their methods, but of a function only the address.
	accessKey func() string
}

// NewClient returns a client for the service at baseURL, which sends accessKey
// with every request (part 5 of the document). It sends nothing itself.
//
// The base URL is absolute, http or https, and may have a path, such as
// https://gateway.example.com/push, to which the paths of the operations are
// added. It has no user information, query or fragment.
func NewClient(baseURL, accessKey string, opts ...Option) (*Client, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, fmt.Errorf("msgpush: the base URL %w", err)
	}
	if err := checkHeaderValue(accessKey); err != nil {
		return nil, fmt.Errorf("msgpush: the access key %w", err)
	}
	s := settings{userAgent: "msgpush-go/" + Version}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("msgpush: option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(&s); err != nil {
			return nil, fmt.Errorf("msgpush: %w", err)
		}
	}
	return &Client{
		baseURL:   base,
		http:      s.newHTTPClient(),
		userAgent: s.userAgent,
		accessKey: func() string { return accessKey },
	}, nil
}

// parseBaseURL returns raw without a slash at its end. Its errors do not quote
// raw: it may hold a password, or be the access key in the wrong place.
func parseBaseURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("must be absolute, with the scheme http or https")
	case u.Hostname() == "":
		return "", errors.New("has no host")
	case u.User != nil:
		return "", errors.New("must not have user information")
	case strings.Contains(raw, "?"):
		return "", errors.New("must not have a query")
	case strings.Contains(raw, "#"):
		return "", errors.New("must not have a fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// specified calls an operation of which the document shows the data. A success
// without data is a [DecodeError].
func specified[T any](ctx context.Context, c *Client, op Operation, query, body any) (*T, error) {
	request := Request{Method: op.Method, Path: op.Path, Query: query, Body: body}
	answer, err := c.send(ctx, op.String(), request)
	if err != nil {
		return nil, err
	}
	data, err := decode[T](op.String(), answer)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, answer.decodeError(op.String(), errNoData)
	}
	return data, nil
}
