// Package msgpush is a client for the open management interface of a message
// push service: JSON over HTTP, authenticated by an access key.
//
// A [Client] is made once, with [NewClient], and shared:
//
//	client, err := msgpush.NewClient("https://push.example.com", accessKey)
//	...
//	mail, err := client.MailDetail(ctx, "101")
//
// It has one method for each operation that the document of the interface
// specifies, named after its path, such as [Client.MailDetail] for
// /api/open/mail/detail and [Client.ForwardLogList] for
// /api/open/forwardLog/list; [Operations] lists them.
//
// The document belongs to the owner of the service, who has it for those who use
// it, and is no part of this module; the numbers of its parts are given so that
// the two can be read side by side.
//
// The operations that the document only names have a method each that sends
// nothing and returns an [*UnimplementedError]. Such a method will change its
// signature once its operation is known. Whoever knows more about one of them
// than the document can send it with [Call].
//
// # Lists
//
// A list operation returns a [Page]. A whole list is walked with
// [Client.MPAll], [Client.ForwardRuleAll] and [Client.ForwardLogAll], or page by
// page with [Client.MPPages], [Client.ForwardRulePages] and
// [Client.ForwardLogPages], with pages asked for ahead if [Prefetch] says so. [All]
// tells what is promised of lists that change meanwhile, and walks any other list.
//
// # Errors
//
// A call fails in one of three ways, told apart with [errors.As], in this order:
//
//   - [*APIError]: the service answered and refused
//   - [*DecodeError]: the service answered and cannot be understood
//   - [*CallError]: no whole answer came; [errors.Is] and [errors.As] reach the
//     cause, such as [context.Canceled], [context.DeadlineExceeded] or [*url.Error]
//
// Any other error of a call is an [*UnimplementedError], or about its arguments,
// and nothing was sent. A walk ends in one more, if the service would have it go
// on for ever; see [All].
//
// # Retries
//
// The operations that the document specifies only read, so they are tried again
// when the network or the service fails them for a while, as the [RetryPolicy]
// says. What [Call] sends is tried again only if its caller says that it may be
// repeated, or if no connection could be made at all. No redirect is followed:
// that would take the access key elsewhere.
//
// A call ends with its context, whatever it is waiting for. Beside that, each attempt
// has a time-out ([WithTimeout]), and no body is read without end
// ([WithMaxResponseBytes]).
//
// # Keys and secrets
//
// The access key goes to the host of the base URL and nowhere else. It and the
// passwords of mail channels are a [Secret], for which fmt and log/slog print a
// placeholder, and no error has the key in its text. Where keys expire,
// [WithAccessKeySource] takes a source of them, and [CachedAccessKey] makes one.
//
// # Seeing what happens
//
// [WithLogger] logs attempts and retries. What net/http has transports for, such
// as metrics and traces, goes into the http.Client given to [WithHTTPClient].
//
// # Testing
//
// Package [example.com/msgpush/msgpushtest] has a stand-in for the service: it
// listens on loopback, holds records, and fails as it is told to.
//
// # What the document leaves open
//
// The document gives no meaning to any code but 200, no bounds, no time zone
// and no limits, and this package adds none of its own. A field that has no
// comment here has no more than its name and type there. Where this package must
// choose, as with [DefaultPageSize], it says so.
package msgpush

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Version is the version of this package, sent in the User-Agent header.
const Version = "0.1.0"

// A Client calls the operations of one service with one access key. Make it
// with [NewClient]; the zero Client sends nothing and returns an error from
// every call. It is safe for concurrent use, and is best made once and shared.
type Client struct {
	baseURL string // without a slash at its end
	http    *http.Client
	settings
}

// NewClient returns a client for the service at baseURL, which sends accessKey
// with every request (part 5 of the document). It sends nothing itself.
//
// The base URL is absolute, http or https, and may have a path, such as
// https://gateway.example.com/push, to which the paths of the operations are
// added. It has no user information, query or fragment. The access key is empty
// if, and only if, there is a source of keys, given with [WithAccessKeySource].
func NewClient(baseURL, accessKey string, opts ...Option) (*Client, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, fmt.Errorf("msgpush: the base URL %w", err)
	}
	s := defaultSettings()
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("msgpush: option %d of %d is nil", i+1, len(opts))
		}
		if err := opt(&s); err != nil {
			return nil, fmt.Errorf("msgpush: %w", err)
		}
	}
	switch {
	case s.accessKey == nil:
		if err := checkHeaderValue(accessKey); err != nil {
			return nil, fmt.Errorf("msgpush: the access key %w", err)
		}
		s.accessKey = fixedAccessKey(accessKey)
	case accessKey != "":
		return nil, errors.New("msgpush: there are both an access key and WithAccessKeySource; with a source, the access key must be empty")
	}
	return &Client{baseURL: base, http: s.newHTTPClient(), settings: s}, nil
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

// call makes a call with the access key and, if that is refused and there is
// another, once more with that. The operation names it in errors.
func call[T any](ctx context.Context, c *Client, operation string, r Request, dataRequired bool) (*T, error) {
	if c == nil || c.http == nil {
		return nil, fmt.Errorf("msgpush: %s: the client was not made by NewClient", operation)
	}
	if ctx == nil {
		return nil, fmt.Errorf("msgpush: %s: the context is nil", operation)
	}
	x := exchanges.Get().(*exchange)
	defer x.release()
	x.state = state{client: c, operation: operation, request: r}
	key, err := c.accessKey(ctx, "")
	if err != nil {
		return nil, x.callError(ctx, fmt.Errorf("access key: %w", err))
	}
	x.key = key
	data, err := exchangeFor[T](ctx, x, dataRequired)
	if err == nil || !c.isKeyRefused(err) {
		return data, err
	}
	key, keyErr := c.accessKey(ctx, x.key)
	if keyErr != nil {
		return nil, x.callError(ctx, fmt.Errorf("%w; another access key: %w", err, keyErr))
	}
	if key == x.key {
		return nil, err
	}
	x.logRefusedKey(ctx)
	x.state = state{client: c, operation: operation, request: r, key: key, earlier: x.attempts}
	return exchangeFor[T](ctx, x, dataRequired)
}

func exchangeFor[T any](ctx context.Context, x *exchange, dataRequired bool) (*T, error) {
	answer, err := x.do(ctx)
	if err != nil {
		return nil, err
	}
	return decode[T](answer, x.client.unmarshal, dataRequired)
}

// isKeyRefused reports whether an error says that the service does not take the
// access key.
func (c *Client) isKeyRefused(err error) bool {
	var e *APIError
	if !errors.As(err, &e) {
		return false
	}
	return e.HTTPStatus == http.StatusUnauthorized || e.hasCode && slices.Contains(c.rejectedKeyCodes, e.Code)
}

// specified calls an operation that the document specifies. They all only read,
// so they may be repeated, and they all have data.
func specified[T any](ctx context.Context, c *Client, op Operation, query, body any) (*T, error) {
	r := Request{Method: op.Method, Path: op.Path, Query: query, Body: body, Repeatable: true}
	return call[T](ctx, c, op.String(), r, true)
}
