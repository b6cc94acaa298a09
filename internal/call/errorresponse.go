package call

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
)

// setErrorResponse makes f the failure of an error response.
func (c *Caller) setErrorResponse(f *Failure, b rejectedBody) {
	f.Kind = ErrorResponse
	if b.unreadableErr != nil {
		f.remark(b.unreadableErr.Error())
	}
	if f.isErrorEnvelope() { // with code 200, the data may be a mail channel with its password
		f.Msg = b.env.text()
		if len(b.env.Data) <= redact.MaxText {
			f.RawData = b.env.Data
		}
	}
	if !f.IsEnvelope && !b.endsEarly() && b.unreadableErr == nil {
		c.quote(f, b.bytes)
	}
	c.setWait(f)
	c.classify(f)
}

// quote keeps the beginning of a body, unless it may be a success that was damaged, with a password.
func (c *Caller) quote(f *Failure, body []byte) {
	lower := bytes.ToLower(body)
	isIn := func(name string) bool { return bytes.Contains(lower, []byte(name)) }
	if slices.ContainsFunc(c.SecretNames, isIn) {
		f.remark("the body is not quoted: it may have a password")
		return
	}
	text := bytes.TrimPrefix(body, []byte(ByteOrderMark))
	f.Excerpt = bytes.Clone(text[:min(len(text), redact.MaxText+1)])
}

// classify sets whether an error response rejects the key, or is worth a retry.
func (c *Caller) classify(f *Failure) {
	hasRejectedCode := f.IsEnvelope && slices.Contains(c.RejectedKeyCodes, f.Code)
	hasRetryableCode := f.IsEnvelope && slices.Contains(c.RetryableCodes, f.Code)
	f.KeyRejected = f.Status == http.StatusUnauthorized || hasRejectedCode
	f.Transient = !f.KeyRejected && (hasRetryableCode || hasRetryableStatus(f.Status, f.isErrorEnvelope()))
	if len(c.RejectedKeyCodes) == 0 && !f.KeyRejected {
		f.hintAtRejectedKey()
	}
}

// hasRetryableStatus reports whether an HTTP status is worth a retry. With an error envelope, a 500 is the
// response of the service itself, and not of a gateway that does not reach it.
func hasRetryableStatus(status int, isErrorEnvelope bool) bool {
	isOfService := status == http.StatusInternalServerError && isErrorEnvelope
	return httpspec.IsRetryable(status) && !isOfService
}

// setWait sets the wait that an error response requests before a retry.
func (c *Caller) setWait(f *Failure) {
	wait, ok := httpspec.RetryAfter(f.Header)
	f.RetryAfter, f.RequestedWait = wait, wait
	if f.Status == http.StatusTooManyRequests && !ok {
		f.RequestedWait = min(time.Second, c.Retry.MaxWait)
	}
}

// hintAtRejectedKey adds a remark for a code that many services use for a rejected key: the API document
// shows none.
func (f *Failure) hintAtRejectedKey() {
	if f.Code == http.StatusUnauthorized || f.Code == http.StatusForbidden {
		f.remark(fmt.Sprintf("if code %d means a rejected access key, pass it to WithRejectedKeyCodes", f.Code))
	}
}
