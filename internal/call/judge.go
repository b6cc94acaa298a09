package call

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
	"example.com/msgpush/internal/transport"
)

// CodeSuccess is the code of an envelope that denotes success.
const CodeSuccess = 200

// judge decodes the response of an attempt, and returns nil if it is a success.
func (c *Caller) judge(s *state, resp *http.Response, err error) *Failure {
	if err != nil {
		return c.noResponse(s, err)
	}
	body := bytesOf(resp)
	charsetErr := checkCharset(resp, body, &s.keys)
	if charsetErr != nil || !httpspec.IsSuccess(resp.StatusCode) {
		return c.unsuccessful(s, resp, newRejectedBody(resp, body, nil, charsetErr, &s.keys))
	}
	if resp.StatusCode == http.StatusNoContent && len(body) == 0 {
		body = []byte(successWithoutData)
	}
	omitted, err := s.spec.Decode(body)
	if err != nil {
		return c.unsuccessful(s, resp, newRejectedBody(resp, body, err, nil, &s.keys))
	}
	if omitted != nil {
		s.omitted = &Failure{
			Kind:       Undecodable,
			Progress:   s.progress(),
			Status:     resp.StatusCode,
			Header:     resp.Header,
			IsEnvelope: true,
			Code:       CodeSuccess,
			Body:       bytes.Clone(body),
			Cause:      omitted,
		}
	}
	return nil
}

const successWithoutData = `{"code":200}`

// noResponse returns the failure of an attempt without a complete response.
func (c *Caller) noResponse(s *state, err error) *Failure {
	step := "the request to " + c.Base.String() + " failed: "
	if s.resp != nil {
		step = "reading the response from " + c.Base.String() + ": "
	}
	return &Failure{
		Kind:          NoResponse,
		Progress:      s.progress(),
		Step:          step,
		Cause:         err,
		Transient:     !errors.Is(err, errBodyTooLarge) && !transport.IsPermanent(err),
		DialFailed:    s.dialFailed,
		NotProcessed:  s.notProcessed(),
		RequestedWait: transport.ProxyRetryAfter(err),
	}
}

// A rejectedBody is the body of a response that is not a success.
type rejectedBody struct {
	bytes         []byte
	unreadableErr error // the body has a charset or an encoding that the client does not read, or was cut
	decodeErr     error // of the decoder of successes; nil: not called
	env           errorEnvelope
	jsonErr       error // of env
}

var errBodyCut = errors.New("the body is not quoted: its end is missing")

func newRejectedBody(resp *http.Response, body []byte, decodeErr, charsetErr error, keys *redact.Keys) rejectedBody {
	b := rejectedBody{bytes: body, decodeErr: decodeErr, unreadableErr: charsetErr}
	b.env, b.jsonErr = decodeError(body)
	encodingErr := checkEncoding(resp, keys)
	isEncoded := len(body) > 0 && b.jsonErr != nil && encodingErr != nil // an empty body is one that ends too early
	_, isEnvelope := b.env.code()
	switch {
	case isEncoded:
		b.unreadableErr = encodingErr
	case isCut(resp) && !isEnvelope: // perhaps within a key, whose beginning would not be redacted
		b.unreadableErr = cmp.Or(charsetErr, errBodyCut)
	}
	return b
}

// endsEarly reports whether the JSON is truncated.
func (b rejectedBody) endsEarly() bool {
	return errors.Is(b.jsonErr, io.EOF) || errors.Is(b.jsonErr, io.ErrUnexpectedEOF)
}

// unsuccessful returns the failure of a response that is not a success.
func (c *Caller) unsuccessful(s *state, resp *http.Response, b rejectedBody) *Failure {
	f := &Failure{Progress: s.progress(), Status: resp.StatusCode, Header: resp.Header}
	f.Code, f.IsEnvelope = b.env.code()
	if mayComeFromOtherService(f.Status) {
		f.Base = c.Base.String()
	}
	if httpspec.IsSuccess(f.Status) && !f.isErrorEnvelope() {
		f.setUndecodable(b)
		f.Body = bytes.Clone(bytesOf(resp)) // not that of b, which is successWithoutData for HTTP 204
	} else {
		c.setErrorResponse(f, b)
		f.NotProcessed = f.isRejection() && !s.earlierMayBeProcessed
	}
	return f
}

// setUndecodable makes f the failure of a response with HTTP status 2xx that cannot be understood.
func (f *Failure) setUndecodable(b rejectedBody) {
	f.Kind = Undecodable
	f.Cause = b.cause()
	// A gateway may forward a truncated response as a complete one.
	f.Transient = b.unreadableErr == nil && b.endsEarly()
	var msg string
	if b.env.hasTextAsCode() && json.Unmarshal(b.env.text(), &msg) == nil {
		f.remark("the msg is " + redact.Shorten(f.Keys.Text(msg), maxMsg)) // not in the cause, which is logged
	}
}

// cause returns why the body of an undecodable response cannot be understood.
func (b rejectedBody) cause() error {
	switch {
	case b.unreadableErr != nil:
		return errs.Hide(b.unreadableErr.Error(), b.decodeErr)
	case b.endsEarly():
		text := fmt.Sprintf("the JSON ends too early, after %d bytes", len(b.bytes))
		return errs.Hide(text, errors.Join(b.jsonErr, b.decodeErr))
	default:
		return b.decodeErr
	}
}

const maxMsg = 160 // characters

// mayComeFromOtherService reports whether a response that is not an envelope may show that the base URL is
// wrong.
func mayComeFromOtherService(status int) bool {
	isRedirect := status/100 == 3
	isUnknownPath := status == http.StatusNotFound || status == http.StatusMethodNotAllowed
	return httpspec.IsSuccess(status) || isRedirect || isUnknownPath
}
