package call

import (
	"encoding/json"
	"net/http"
	"time"

	"example.com/msgpush/internal/redact"
)

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
	Transient     bool          // another attempt, or the same call later, may succeed
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

func (f *Failure) remark(text string) { f.Remarks = append(f.Remarks, text) }

func (f *Failure) isErrorEnvelope() bool { return f.IsEnvelope && f.Code != CodeSuccess }
