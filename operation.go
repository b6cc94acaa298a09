package msgpush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// An Operation is an operation of the interface or, without a name, a group of
// operations that the document lists as a whole. What the document does not show
// is empty.
type Operation struct {
	// Group is what the operation is about, such as "message rule".
	Group string
	// Name is what it does, such as "list". A group has none.
	Name string
	// Method is its HTTP method.
	Method string
	// Path is its path below the base URL.
	Path string
}

// Specified reports whether the document shows how to call the operation, that
// is, whether this package implements it.
func (o Operation) Specified() bool { return o.Path != "" }

// String returns the group and the name, such as "message rule list".
func (o Operation) String() string { return strings.TrimSuffix(o.Group+" "+o.Name, " ") }

// Operations returns every operation that the document specifies (parts 4.1 to
// 4.4), then those that it only names (parts 4.5 and 5), and last the groups of
// which it names no operation (part 4.5). The slice is the caller's.
func Operations() []Operation {
	operations := []Operation{
		opMailDetail,
		opMPList,
		opForwardRuleList,
		opForwardLogList,

		opForwardRuleDetail,
		opForwardRuleCreate,
		opForwardRuleModify,
		opForwardRuleDelete,
		opForwardRuleSetEnabled,
		opForwardRuleTest,
		opForwardRuleMode,
		opForwardRuleSetMode,
		opForwardLogDetail,
		opWebhookList,
		opWebhookDetail,
		opWebhookCreate,
		opWebhookModify,
		opEnterpriseAppList,
		opMailList,

		opAccessKeyObtain,
	}
	for _, group := range []string{
		"access key",
		"messages",
		"user",
		"message tokens",
		"groups",
		"group users",
		"function settings",
		"friends",
		"preprocessing",
		"image management",
		"companion form product",
		"companion document product",
		"companion table product",
	} {
		operations = append(operations, Operation{Group: group})
	}
	// One that has become specified takes its place by itself.
	slices.SortStableFunc(operations, func(a, b Operation) int {
		switch {
		case a.Specified() == b.Specified():
			return 0
		case a.Specified():
			return -1
		default:
			return 1
		}
	})
	return operations
}

// A Request describes a call of an operation for which this package has no
// method.
type Request struct {
	// Method is the HTTP method.
	Method string
	// Path is added to the base URL. It begins with one slash and has, also
	// where it is escaped, no "..", backslash or control character, and no query
	// or fragment. Escapes such as %2F are sent as they are.
	Path string
	// Query is a struct with url tags as go-querystring reads them, a pointer
	// to one, or [url.Values]; nil is no query.
	Query any
	// Body is marshalled to JSON; nil is no body. A GET has none.
	Body any
	// Repeatable says that it does no harm if the service gets the request
	// more than once, so that it is tried again as the [RetryPolicy] says. A
	// request that is not repeatable is tried again only where no connection
	// could be made, or where the service refused the access key.
	Repeatable bool
}

// Call sends any request the way the methods of c send theirs: with the access
// key, to the base URL's host alone, and with the same errors. It is for those
// who know more about an operation than the document does.
//
// T is the type of the envelope's data: a struct, a pointer, a slice, a string,
// a number, a [Page], a [json.RawMessage] for data as it came, or struct{} for
// none, whatever there is. Data that is missing or null gives the zero T.
func Call[T any](ctx context.Context, c *Client, r Request) (T, error) {
	var zero T
	if err := r.check(); err != nil {
		return zero, fmt.Errorf("msgpush: Call: %w", err)
	}
	operation := r.Method + " " + r.Path
	if _, ok := any(zero).(struct{}); ok {
		_, err := call[json.RawMessage](ctx, c, operation, r, false)
		return zero, err
	}
	data, err := call[T](ctx, c, operation, r, false)
	if err != nil || data == nil {
		return zero, err
	}
	return *data, nil
}

// check refuses what could lead the access key away from the base URL, here or
// at a proxy that reads a path in a way of its own. Its errors do not quote the
// path, since what is refused there may be a URL with a password, or a query.
func (r Request) check() error {
	if !isToken(r.Method) {
		return fmt.Errorf("method %q is not an HTTP method", excerpt(r.Method))
	}
	if r.Method == http.MethodGet && r.Body != nil {
		return errors.New("a GET has no body: put what it asks for into Query")
	}
	if err := checkPath(r.Path); err != nil {
		return fmt.Errorf("path %w", err)
	}
	return nil
}

func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return errors.New("must begin with a slash, without scheme and host")
	}
	if strings.ContainsAny(path, "?#") {
		return errors.New("must not have a query or a fragment: use Query")
	}
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return errors.New("has a percent sign that begins no escape")
	case strings.HasPrefix(decoded, "//"):
		return errors.New("must not begin with two slashes")
	case strings.ContainsFunc(decoded, unicode.IsControl):
		return errors.New("must not have control characters")
	case strings.Contains(decoded, `\`):
		return errors.New("must not have a backslash")
	case slices.ContainsFunc(strings.Split(decoded, "/"), isParent):
		return errors.New(`must not have ".."`)
	}
	return nil
}

// isParent reports whether a segment of a path is "..", be it with parameters.
func isParent(segment string) bool {
	name, _, _ := strings.Cut(segment, ";")
	return name == ".."
}

// isToken reports whether s is a token as RFC 9110 defines it, which a method
// must be.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
