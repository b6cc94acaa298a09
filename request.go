package msgpush

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/httpspec"
)

// A Request describes a [Call].
//
// net/http may send a request twice, even with MaxAttempts 1: for example a GET if a reused connection closes
// before the first byte of the response, or any request after the HTTP/2 error PROTOCOL_ERROR.
// docs/reliability.md lists the cases.
type Request struct {
	// Name is the operation in errors, logs and metrics, such as "TemplateList"; see
	// [OperationFromContext]. The default is "Call". It should be a constant: metrics have a series for
	// each name.
	Name string
	// Method is the HTTP method, in upper case. It must not be HEAD, whose response has no envelope.
	Method string
	// Path is added to the base URL. It begins with one slash and contains no query, no fragment, no
	// invalid escape, and no control character, "." segment or ".." segment, even escaped. Escapes such as
	// %2F are sent unchanged.
	Path string
	// Query is a struct with url tags as go-querystring defines them, a pointer to such a struct, or
	// [url.Values]. If nil, there is no query. A field of type [Secret] sends its value. A path, a query or a
	// body that contains "[redacted]" is an error, since that is how a Secret prints.
	Query any
	// Body is encoded with [json.Marshal]. If nil, there is no body. It must be nil for a GET. To send
	// JSON, use a [json.RawMessage], which is compacted; a []byte or a plain [io.Reader] is an error. Use
	// string(s) to send the value of a Secret.
	Body any
	// Idempotent states that sending the request twice has the same effect as sending it once, so that the
	// call may be retried according to the [RetryPolicy]. Otherwise, it is retried only if dialing the
	// service or a proxy failed, so that the request was not sent. There is a rare exception: net/http
	// itself may send a GET, or a request by HTTP/2, on a reused connection that is being closed, and then
	// fail to dial another one. Any request whose key was rejected is sent once more if the source has
	// another key.
	Idempotent bool
}

// check returns an error if the method, the path or the type of the body is invalid. The error quotes nothing
// of the request, which may contain a secret.
func (r Request) check() error {
	_, err := http.NewRequestWithContext(context.Background(), r.Method, "/", nil)
	switch {
	case err != nil || r.Method == "" || r.Method != strings.ToUpper(r.Method):
		return errors.New("the method is not an HTTP method, such as GET or POST")
	case r.Method == http.MethodHead:
		return errors.New("the response to a HEAD has no body to decode: use GET")
	case r.Method == http.MethodGet && r.Body != nil:
		return errors.New("a GET has no body: use Query")
	case isRaw(r.Body):
		return errors.New("the body is a []byte or an io.Reader, which is not sent unchanged: use json.RawMessage for JSON")
	case !strings.HasPrefix(r.Path, "/"):
		return errors.New("the path must begin with a slash, without scheme and host")
	case strings.ContainsAny(r.Path, "?#"):
		return errors.New("the path must not have a query or a fragment: use Query")
	}
	if err := httpspec.CheckPath(r.Path); err != nil {
		return fmt.Errorf("the path %w", err)
	}
	return nil
}

// isRaw reports whether a body is meant to be sent unchanged, but would be encoded.
func isRaw(body any) bool {
	_, isBytes := body.([]byte)
	_, isReader := body.(io.Reader)
	_, encodesItself := body.(json.Marshaler)
	return (isBytes || isReader) && !encodesItself
}

// Call sends a request for which [Client] has no method, with the access key, to the host of the base URL. It
// returns the same errors as the methods of Client. With a [Page], it may also return the page and an error.
//
// T is the type of Data in the [Envelope] of the response, such as a struct, a slice, a [Page] or
// [json.RawMessage]. If the data is missing or null, Call returns the zero T; but with a [Page], or a pointer
// to one, data that is not a page is a [*DecodeError]. So is an object without an id and without any value,
// if T is a record of this package. With T struct{}, the data is ignored.
func Call[T any](ctx context.Context, c *Client, r Request) (T, error) {
	var zero T
	if err := r.check(); err != nil {
		return zero, fmt.Errorf("msgpush: Call: %w", err)
	}
	spec := call.Spec{
		Operation:  cmp.Or(r.Name, "Call"),
		Method:     r.Method,
		Path:       httpspec.EscapePath(r.Path),
		Query:      r.Query,
		Body:       r.Body,
		Idempotent: r.Idempotent,
	}
	if _, ok := any(zero).(struct{}); ok {
		_, err := do[json.RawMessage](ctx, c, spec, false)
		return zero, err
	}
	data, err := do[T](ctx, c, spec, false)
	if data == nil {
		return zero, err
	}
	return *data, err
}

// read calls an operation that reads a record or a page: it is idempotent, and its successes have data. T is
// a type of this package.
func read[T any](ctx context.Context, c *Client, op Operation, query, body any) (*T, error) {
	spec := op.spec(query, body)
	spec.Idempotent = true
	return do[T](ctx, c, spec, true)
}

// do makes a call. If no data is required, the result may be nil. To ignore the data, use json.RawMessage as
// T, which accepts any data. If records of a page are left out, do returns the page and an error.
func do[T any](ctx context.Context, c *Client, spec call.Spec, dataRequired bool) (*T, error) {
	if c == nil || c.caller == nil {
		return nil, fmt.Errorf("msgpush: %s: the client was not made by NewClient", spec.Operation)
	}
	var data *T
	spec.Decode = func(body []byte) (omitted, err error) {
		data, omitted, err = decode[T](c.decoder, body, dataRequired)
		return omitted, err
	}
	start := time.Now()
	result, err := c.caller.Do(ctx, spec)
	if err != nil {
		return nil, argumentError(spec.Operation, result.Keys, err)
	}
	err = newError(cmp.Or(result.Failure, result.Omitted))
	if c.observeCall != nil {
		c.observeCall(ctx, CallResult{
			Operation: operationName(spec.Operation, result.Keys),
			Start:     start,
			Duration:  time.Since(start),
			Attempts:  result.Attempts,
			Err:       err,
		})
	}
	return data, err
}
