package call

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
	"example.com/msgpush/internal/transport"
)

// CodeSuccess is the code of an envelope that denotes success.
const CodeSuccess = 200

// A Failure is an attempt, or a call, without success. Its texts may contain secrets: redact them
// with Keys when they are used.
type Failure struct {
	Kind     Kind
	Spec     *Spec
	Attempts int          // of the call so far
	Query    string       // of the request
	Keys     *redact.Keys // access keys of the call, also later ones

	Response

	Base          string        // the base URL, if it may be wrong
	Step          string        // that failed, the beginning of the error text; may be empty
	Cause         error         // why the response is incomplete or cannot be decoded, or why a part is left out
	Transient     bool          // another attempt may succeed
	NotSent       bool          // for certain, the request was not sent
	RequestedWait time.Duration // before a retry, in addition to the backoff
	Remarks       []string      // for the end of the error text: a hint, or why the call was not retried
	Previous      *Failure      // the last failure before the call was stopped; may be nil
}

// A Response is the response to an attempt. It is zero if there was none.
type Response struct {
	Status int
	Header http.Header
	// Body is the whole body if Kind is Undecodable, and the beginning of an error response that is no
	// envelope. Otherwise it is nil.
	Body         []byte
	IsEnvelope   bool // the body is an envelope with a code
	Code         int
	Msg, RawData json.RawMessage
	KeyRejected  bool
	RetryAfter   time.Duration // 0 if the header is missing or invalid
}

// A Kind determines the error that a call returns.
type Kind int

// The kinds of failures.
const (
	ErrorResponse Kind = iota // an *APIError
	Undecodable               // a *DecodeError
	NoResponse                // a *RequestError
)

// Error returns no details, which would have to be redacted.
func (*Failure) Error() string { return "the call failed" }

func (f *Failure) remark(text string) { f.Remarks = append(f.Remarks, text) }

// judge decodes the response of an attempt, and returns nil if it is a success.
func (c *Caller) judge(s *state, resp *http.Response, err error) *Failure {
	if err != nil {
		return c.noResponse(s, err)
	}
	body := bytesOf(resp)
	if !httpspec.IsSuccess(resp.StatusCode) {
		return c.unsuccessful(s, resp, body, nil)
	}
	if resp.StatusCode == http.StatusNoContent && len(body) == 0 {
		body = []byte(successWithoutData)
	}
	if err := checkCharset(resp, body, &s.keys); err != nil {
		return c.unsuccessful(s, resp, body, err)
	}
	leftOut, err := s.spec.Decode(body, c.Unmarshal)
	if err != nil {
		return c.unsuccessful(s, resp, body, err)
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
	env           errorEnvelope
	jsonErr       error // of env
	unreadableErr error // the body has another encoding or charset
}

// endsEarly reports whether the JSON is truncated.
func (b rejectedBody) endsEarly() bool {
	return errors.Is(b.jsonErr, io.EOF) || errors.Is(b.jsonErr, io.ErrUnexpectedEOF)
}

// unsuccessful returns the failure of a response that is not a success. decodeErr is the error of
// the decoder, or nil if the HTTP status is not 2xx. For an error response, decodeErr is ignored.
func (c *Caller) unsuccessful(s *state, resp *http.Response, body []byte, decodeErr error) *Failure {
	f := s.newFailure(ErrorResponse)
	f.Status, f.Header = resp.StatusCode, resp.Header
	if mayComeFromOtherService(f.Status) {
		f.Base = c.Base.String()
	}
	b := rejectedBody{bytes: body}
	b.env, b.jsonErr = decodeError(body)
	b.unreadableErr = checkReadable(resp, body, b.jsonErr, f.Keys)
	if b.jsonErr == nil {
		f.Code, f.IsEnvelope = b.env.code()
	}
	if httpspec.IsSuccess(f.Status) && !f.isErrorEnvelope() {
		f.setUndecodable(b, decodeErr)
	} else {
		c.setErrorResponse(f, b)
	}
	return f
}

func (f *Failure) isErrorEnvelope() bool { return f.IsEnvelope && f.Code != CodeSuccess }

// setUndecodable completes the failure of a response with HTTP status 2xx that cannot be understood.
func (f *Failure) setUndecodable(b rejectedBody, decodeErr error) {
	f.Kind, f.Body, f.Cause = Undecodable, bytes.Clone(b.bytes), decodeErr
	var msg string
	switch {
	case b.unreadableErr != nil:
		f.Cause = errs.Hide(b.unreadableErr.Error(), decodeErr, nil)
	case b.endsEarly():
		f.setTruncated(len(b.bytes), b.jsonErr)
	case b.env.hasTextAsCode() && json.Unmarshal(b.env.text(), &msg) == nil:
		text := decodeErr.Error() + "; the msg is " + redact.Shorten(f.Keys.Text(msg), maxMsg)
		f.Cause = errs.Hide(text, decodeErr, nil)
	}
}

const maxMsg = 160 // characters

// setErrorResponse completes the failure of an error response.
func (c *Caller) setErrorResponse(f *Failure, b rejectedBody) {
	if b.unreadableErr != nil {
		f.remark(b.unreadableErr.Error())
	}
	if f.isErrorEnvelope() {
		f.setEnvelope(b.env)
	}
	if !f.IsEnvelope && !b.endsEarly() {
		f.quote(b.bytes)
	}
	c.setWait(f)
	c.classify(f)
}

// setEnvelope keeps the members of an error envelope. With code 200, the data may be a mail channel with
// its password, so they are not kept.
func (f *Failure) setEnvelope(env errorEnvelope) {
	f.Msg = env.text()
	if len(env.Data) <= redact.MaxText {
		f.RawData = env.Data
	}
}

// quote keeps the beginning of a body, unless it may be a success that was damaged, with a password.
func (f *Failure) quote(body []byte) {
	mayHavePassword := bytes.Contains(bytes.ToLower(body), []byte("password"))
	if mayHavePassword {
		f.remark("the body is not quoted: it may have a password")
		return
	}
	text := bytes.TrimPrefix(body, []byte(ByteOrderMark))
	f.Body = bytes.Clone(text[:min(len(text), redact.MaxText+1)])
}

// classify sets whether an error response rejects the key, or is worth a retry.
func (c *Caller) classify(f *Failure) {
	hasRejectedCode := f.IsEnvelope && slices.Contains(c.RejectedKeyCodes, f.Code)
	hasRetryableCode := f.IsEnvelope && slices.Contains(c.RetryableCodes, f.Code)
	f.KeyRejected = f.Status == http.StatusUnauthorized || hasRejectedCode
	f.Transient = !f.KeyRejected && (hasRetryableCode || hasRetryableStatus(f.Status, f.isErrorEnvelope()))
	if c.CanReplaceKey && len(c.RejectedKeyCodes) == 0 && !f.KeyRejected {
		f.hintAtRejectedKey()
	}
}

// mayComeFromOtherService reports whether a response that is not an envelope may show that the base URL is
// wrong.
func mayComeFromOtherService(status int) bool {
	isRedirect := status/100 == 3
	isUnknownPath := status == http.StatusNotFound || status == http.StatusMethodNotAllowed
	return httpspec.IsSuccess(status) || isRedirect || isUnknownPath
}

// hasRetryableStatus reports whether an HTTP status is worth a retry. With an error envelope, a 500
// is the response of the service itself, and not of a gateway that does not reach it.
func hasRetryableStatus(status int, isErrorEnvelope bool) bool {
	isOfService := status == http.StatusInternalServerError && isErrorEnvelope
	return httpspec.IsRetryable(status) && !isOfService
}

// setTruncated completes the failure of a response whose JSON ends too early: a gateway may forward a
// truncated response as a complete one.
func (f *Failure) setTruncated(size int, jsonErr error) {
	f.Transient = true
	text := fmt.Sprintf("the JSON ends too early, after %d bytes", size)
	f.Cause = errs.Hide(text, errors.Join(jsonErr, f.Cause), nil)
}

// setWait sets the wait that an error response requests before a retry.
func (c *Caller) setWait(f *Failure) {
	wait, ok := httpspec.RetryAfter(f.Header)
	f.RetryAfter, f.RequestedWait = wait, wait
	if f.Status == http.StatusTooManyRequests && !ok {
		f.RequestedWait = min(time.Second, c.Retry.MaxWait)
	}
}

// hintAtRejectedKey adds a remark if the code of the envelope may mean a rejected key.
func (f *Failure) hintAtRejectedKey() {
	if f.Code == http.StatusUnauthorized || f.Code == http.StatusForbidden {
		f.remark(fmt.Sprintf("if code %d means a rejected access key, pass it to WithRejectedKeyCodes", f.Code))
	}
}
