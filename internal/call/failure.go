package call

import (
	"encoding/json"
	"net/http"
	"time"

	"example.com/msgpush/internal/redact"
)

// A Failure is an attempt, or a call, without success, or the part that is left out of a success. Its texts
// may contain secrets: redact them with Keys when they are used.
type Failure struct {
	Kind Kind
	Progress

	Step          string        // the step that failed: the beginning of the error text; may be empty
	Cause         error         // why the response is incomplete or cannot be decoded
	Transient     bool          // another attempt, or the same call later, may succeed
	DialFailed    bool          // no connection could be made, so that the attempt did not send the request
	NotProcessed  bool          // no attempt so far had an effect; see msgpush.NotProcessed
	RequestedWait time.Duration // before a retry, in addition to the backoff
	Remarks       []string      // for the end of the error text: a hint, or why the call was not retried
	Previous      *Failure      // the last failure before the call was stopped; may be nil

	// Of a response.
	Status     int
	Header     http.Header
	Base       string // the base URL, if it may be wrong
	IsEnvelope bool   // the body is an envelope with a code
	Code       int

	// Of an undecodable response.
	Body []byte

	// Of an error response.
	Excerpt      []byte          // the beginning of a body that is no envelope; nil: not quoted
	Msg, RawData json.RawMessage // of an envelope
	KeyRejected  bool
	RetryAfter   time.Duration // 0 if the header is missing or invalid
}

// A Progress describes a call so far.
type Progress struct {
	Spec     *Spec
	Query    string       // of the request; may contain secrets
	Attempts int          // started so far
	Keys     *redact.Keys // access keys of the call, also later ones; for redaction
}

// A Kind determines the error that a call returns.
type Kind int

// The kinds of failures.
const (
	ErrorResponse Kind = iota // an *APIError
	Undecodable               // a *DecodeError
	NoResponse                // a *RequestError
)

func (f *Failure) remark(text string) { f.Remarks = append(f.Remarks, text) }

// isRejection reports whether an error response means that the request was not processed. A 408 or a 409 may
// mean that it was, perhaps because net/http had sent it before. Gateways use statuses above 451 for a client
// that has left.
func (f *Failure) isRejection() bool {
	mayBeProcessed := f.Status == http.StatusRequestTimeout || f.Status == http.StatusConflict
	isRegistered := http.StatusBadRequest <= f.Status && f.Status <= http.StatusUnavailableForLegalReasons
	return f.KeyRejected || isRegistered && !mayBeProcessed
}

func (f *Failure) isErrorEnvelope() bool { return f.IsEnvelope && f.Code != CodeSuccess }
