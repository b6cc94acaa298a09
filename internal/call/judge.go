package call

import (
	"bytes"
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
		return c.unsuccessful(s, resp, rejectedBody{bytes: body, unreadableErr: charsetErr})
	}
	if resp.StatusCode == http.StatusNoContent && len(body) == 0 {
		body = []byte(successWithoutData)
	}
	leftOut, err := s.spec.Decode(body, c.Unmarshal)
	if err != nil {
		return c.unsuccessful(s, resp, rejectedBody{bytes: body, decodeErr: err})
	}
	if leftOut != nil {
		s.leftOut = s.newLeftOut(resp, body, leftOut)
	}
	return nil
}

const successWithoutData = `{"code":200}`

// newLeftOut describes the part that is left out of a success.
func (s *state) newLeftOut(resp *http.Response, body []byte, cause error) *Failure {
	f := s.newFailure(Undecodable)
	f.Status, f.Header = resp.StatusCode, resp.Header
	f.IsEnvelope, f.Code = true, CodeSuccess
	f.Body, f.Cause = bytes.Clone(body), cause
	return f
}

// noResponse returns the failure of an attempt without a complete response.
func (c *Caller) noResponse(s *state, err error) *Failure {
	f := s.newFailure(NoResponse)
	f.Step = "the request to " + c.Base.String() + " failed: "
	if s.resp != nil {
		f.Step = "reading the response from " + c.Base.String() + ": "
	}
	f.Cause = err
	f.NotSent = s.resp == nil && transport.DialFailed(err)
	f.Transient = !errors.Is(err, errBodyTooLarge) && !transport.IsPermanent(err)
	f.RequestedWait = transport.ProxyRetryAfter(err)
	return f
}

// A rejectedBody is the body of a response that is not a success.
type rejectedBody struct {
	bytes         []byte
	unreadableErr error // the body has a charset or an encoding that the client does not read
	decodeErr     error // of the decoder of successes; nil: not called
	env           errorEnvelope
	jsonErr       error // of env
}

// endsEarly reports whether the JSON is truncated.
func (b rejectedBody) endsEarly() bool {
	return errors.Is(b.jsonErr, io.EOF) || errors.Is(b.jsonErr, io.ErrUnexpectedEOF)
}

// unsuccessful returns the failure of a response that is not a success: an error response, or an undecodable
// one.
func (c *Caller) unsuccessful(s *state, resp *http.Response, b rejectedBody) *Failure {
	f := s.newFailure(ErrorResponse)
	f.Status, f.Header = resp.StatusCode, resp.Header
	if mayComeFromOtherService(f.Status) {
		f.Base = c.Base.String()
	}
	b.env, b.jsonErr = decodeError(b.bytes)
	if b.jsonErr == nil {
		f.Code, f.IsEnvelope = b.env.code()
	} else if err := checkEncoding(resp, f.Keys); err != nil {
		b.unreadableErr = err
	}
	if httpspec.IsSuccess(f.Status) && !f.isErrorEnvelope() {
		f.setUndecodable(b)
	} else {
		c.setErrorResponse(f, b)
	}
	return f
}

// setUndecodable completes the failure of a response with HTTP status 2xx that cannot be understood.
func (f *Failure) setUndecodable(b rejectedBody) {
	f.Kind, f.Body, f.Cause = Undecodable, bytes.Clone(b.bytes), b.decodeErr
	var msg string
	switch {
	case b.unreadableErr != nil:
		f.Cause = errs.Hide(b.unreadableErr.Error(), b.decodeErr, nil)
	case b.endsEarly():
		f.setTruncated(len(b.bytes), b.jsonErr)
	case b.env.hasTextAsCode() && json.Unmarshal(b.env.text(), &msg) == nil:
		text := b.decodeErr.Error() + "; the msg is " + redact.Shorten(f.Keys.Text(msg), maxMsg)
		f.Cause = errs.Hide(text, b.decodeErr, nil)
	}
}

const maxMsg = 160 // characters

// setTruncated completes the failure of a response whose JSON ends too early: a gateway may forward a
// truncated response as a complete one.
func (f *Failure) setTruncated(size int, jsonErr error) {
	f.Transient = true
	text := fmt.Sprintf("the JSON ends too early, after %d bytes", size)
	f.Cause = errs.Hide(text, errors.Join(jsonErr, f.Cause), nil)
}

// mayComeFromOtherService reports whether a response that is not an envelope may show that the base URL is
// wrong.
func mayComeFromOtherService(status int) bool {
	isRedirect := status/100 == 3
	isUnknownPath := status == http.StatusNotFound || status == http.StatusMethodNotAllowed
	return httpspec.IsSuccess(status) || isRedirect || isUnknownPath
}
