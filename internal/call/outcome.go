package call

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/lenient"
	"example.com/msgpush/internal/redact"
	"example.com/msgpush/internal/transport"
)

// ByteOrderMark may stand before the JSON of a body, in UTF-8. It is ignored.
const ByteOrderMark = "\ufeff"

// CodeSuccess is the code of an envelope that denotes success.
const CodeSuccess = 200

// An Outcome is how an attempt, or a call, ended. Its texts may contain secrets: redact them with
// Keys when they are used.
type Outcome struct {
	Kind Kind
	Attempt
	Response
	Failure
}

// An Attempt is the latest attempt of a call.
type Attempt struct {
	Request  *Request
	Attempts int          // of the call so far
	Query    string       // of the request
	Keys     *redact.Keys // access keys of the call, also later ones
	Start    time.Time
	Duration time.Duration
	Wait     time.Duration // for Report: before the next attempt, without waits for the key and the limiter
}

// A Response is the response to an attempt. It is zero if there was none.
type Response struct {
	Status       int
	Header       http.Header
	Size         int    // of the body, as far as it was read
	Body         []byte // whole if undecodable or partly left out; the beginning if an error response without an envelope
	IsEnvelope   bool   // the body is an envelope with a code
	Code         int
	Msg, RawData json.RawMessage
	KeyRejected  bool
	RetryAfter   time.Duration // 0 if the header is missing or invalid
}

// A Failure is why an attempt did not succeed. It is zero for a complete success.
type Failure struct {
	Step          string        // that failed, the beginning of the error text; may be empty
	Cause         error         // why there is no complete response, or why it cannot be decoded, or what is left out
	Transient     bool          // another attempt may succeed
	NotSent       bool          // for certain, the request was not sent
	RequestedWait time.Duration // before a retry, in addition to the backoff
	Remarks       []string      // for the end of the error text: a hint, or why the call was not retried
	Previous      *Outcome      // the last failure before the call was stopped; may be nil
}

// A Kind determines the error that a call returns.
type Kind int

// The kinds of outcomes.
const (
	Success       Kind = iota
	ErrorResponse      // an *APIError
	Undecodable        // a *DecodeError
	NoResponse         // a *RequestError
)

func (o *Outcome) remark(text string) { o.Remarks = append(o.Remarks, text) }

// buffers holds buffers for response bodies. A buffer to which a result may refer is not put back.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

var errBodyTooLarge = errors.New("the body is too large")

// readBody reads the body of a response, up to the limit, and closes it.
func (c *Caller) readBody(ctx context.Context, resp *http.Response) (*bytes.Buffer, error) {
	buffer := buffers.Get().(*bytes.Buffer)
	buffer.Reset()
	body := cmp.Or[io.ReadCloser](resp.Body, http.NoBody) // a custom transport may leave it nil
	defer body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return buffer, nil // the body is the connection, which does not end
	}
	_, err := buffer.ReadFrom(io.LimitReader(body, c.MaxResponseBytes+1))
	if int64(buffer.Len()) > c.MaxResponseBytes {
		return buffer, fmt.Errorf("%w: the limit is %d bytes (see WithMaxResponseBytes)", errBodyTooLarge, c.MaxResponseBytes)
	}
	return buffer, c.timeoutOr(ctx, err)
}

// setNoResponse completes o, the outcome of an attempt without a complete response.
func (o *Outcome) setNoResponse(step string, err error) {
	o.Kind, o.Step, o.Cause = NoResponse, step, err
	o.Transient = !errors.Is(err, errBodyTooLarge) && !transport.IsPermanent(err)
	o.RequestedWait = transport.ProxyRetryAfter(err)
}

// setUnsuccessful completes o, the outcome of a response that is not a success. decodeErr is the
// error of the decoder, or nil if the HTTP status is not 200. For an error response, decodeErr is
// ignored.
func (c *Caller) setUnsuccessful(o *Outcome, body []byte, decodeErr error) {
	env, err := decodeError(bytes.TrimPrefix(body, []byte(ByteOrderMark)))
	if err == nil && env.Code != nil {
		o.IsEnvelope, o.Code = true, *env.Code
	}
	isError := o.IsEnvelope && o.Code != CodeSuccess
	if o.Status == http.StatusOK && !isError {
		o.setUndecodable(body, err, decodeErr)
		return
	}
	o.Kind = ErrorResponse
	if isError { // not with code 200: the data may be a mail channel with its password
		o.Msg = env.text()
		o.Msg = o.Msg[:min(len(o.Msg), maxMsg)]
		if len(env.Data) <= redact.MaxText {
			o.RawData = env.Data
		}
	}
	if !o.IsEnvelope {
		o.Body = bytes.Clone(body[:min(len(body), redact.MaxText+1)])
	}
	c.setWait(o)
	hasRejectedCode := o.IsEnvelope && slices.Contains(c.RejectedKeyCodes, o.Code)
	hasRetryableCode := o.IsEnvelope && slices.Contains(c.RetryableCodes, o.Code)
	o.KeyRejected = o.Status == http.StatusUnauthorized || hasRejectedCode
	o.Transient = !o.KeyRejected && (hasRetryableCode || httpspec.IsRetryable(o.Status))
	if c.CanReplaceKey && len(c.RejectedKeyCodes) == 0 && !o.KeyRejected {
		o.hintAtRejectedKey()
	}
}

// An errorEnvelope is the body of an error response. Some gateways write the text into the member
// message or error.
type errorEnvelope struct {
	Code                      *int
	Msg, Message, Error, Data json.RawMessage
}

// decodeError decodes the JSON at the beginning of the body of an error response. The code may be a
// string or a float; see package lenient.
func decodeError(body []byte) (env errorEnvelope, err error) {
	err = json.NewDecoder(bytes.NewReader(body)).Decode(&env)
	if _, isTypeErr := errors.AsType[*json.UnmarshalTypeError](err); !isTypeErr {
		return env, err
	}
	var raw json.RawMessage
	_ = json.NewDecoder(bytes.NewReader(body)).Decode(&raw) // cannot fail: the JSON is valid
	env = errorEnvelope{}
	err = json.Unmarshal(lenient.Rewrite(raw, reflect.TypeOf(env)), &env)
	return env, err
}

// maxMsg is the number of bytes of a msg that are kept. They hold more than the text that is redacted,
// even if all characters are escaped, as in \u0061.
const maxMsg = len(`\u0061`)*redact.MaxText + 1<<10

// text returns msg or, if it is missing or empty, the text of message or error.
func (e errorEnvelope) text() json.RawMessage {
	if !isEmpty(e.Msg) {
		return e.Msg
	}
	for _, text := range []json.RawMessage{e.Message, e.Error} {
		isText := len(text) > 0 && text[0] == '"'
		if isText && !isEmpty(text) {
			return text
		}
	}
	return nil
}

// isEmpty reports whether a member is missing, null or an empty string.
func isEmpty(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null" || string(raw) == `""`
}

// setUndecodable completes o, the outcome of an HTTP 200 response that cannot be understood.
// jsonErr is the error of encoding/json, if there is one.
func (o *Outcome) setUndecodable(body []byte, jsonErr, decodeErr error) {
	o.Kind, o.Body, o.Cause = Undecodable, bytes.Clone(body), decodeErr
	endsEarly := errors.Is(jsonErr, io.EOF) || errors.Is(jsonErr, io.ErrUnexpectedEOF)
	if endsEarly { // a gateway may forward a truncated response as a complete one
		o.Transient = true
		text := fmt.Sprintf("the JSON ends too early, after %d bytes", len(body))
		o.Cause = errs.Hide(text, errors.Join(jsonErr, decodeErr), nil)
	}
}

// setWait sets the wait that an error response requests before a retry.
func (c *Caller) setWait(o *Outcome) {
	wait, ok := httpspec.RetryAfter(o.Header)
	o.RetryAfter, o.RequestedWait = wait, wait
	if o.Status == http.StatusTooManyRequests && !ok {
		o.RequestedWait = min(time.Second, c.Retry.MaxWait)
	}
}

// hintAtRejectedKey adds a remark if the code of the envelope may mean a rejected key.
func (o *Outcome) hintAtRejectedKey() {
	if o.Code == http.StatusUnauthorized || o.Code == http.StatusForbidden {
		o.remark(fmt.Sprintf("if code %d means a rejected access key, pass it to WithRejectedKeyCodes", o.Code))
	}
}
