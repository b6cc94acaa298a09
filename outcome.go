package msgpush

import (
	"context"
	"errors"
	"net/http"

	"example.com/msgpush/internal/errs"
)

// Outcome returns the kind of an error of this module as a label for metrics. No response can add a kind.
//
//   - "success": there is no error
//   - "key_rejected", "rate_limited", "error_code", "http_4xx", "http_5xx", "http_other": an [*APIError] with
//     KeyRejected, or by its HTTP status: 429, 2xx, or another one
//   - "records_omitted": [ErrOmitted], so that all other data came
//   - "invalid_response": any other [*DecodeError]
//   - "no_access_key": [ErrNoAccessKey]
//   - "canceled", "timeout": a context was canceled, or a timeout or deadline has passed
//   - "no_response": any other [*RequestError], also for a response that is longer than
//     [WithMaxResponseBytes]
//   - "inconsistent_list": [ErrInconsistentList], of an iteration
//   - "records_missing", "record_unreadable", "store_failed", "replaced", "hangs", "slow": ErrMissing,
//     ErrUnreadable, ErrStore, ErrReplaced, ErrHangs and ErrSlow of package follow
//   - "other": any other error, for example if an argument is invalid
func Outcome(err error) string {
	apiErr, isErrorResponse := errors.AsType[*APIError](err)
	_, isDecodeError := errors.AsType[*DecodeError](err)
	_, isRequestError := errors.AsType[*RequestError](err)
	labeled, isLabeled := errors.AsType[*errs.Labeled](err)
	switch {
	case err == nil:
		return "success"
	case isLabeled:
		return labeled.Label()
	case errors.Is(err, ErrInconsistentList):
		return "inconsistent_list"
	case errors.Is(err, ErrOmitted):
		return "records_omitted"
	case isErrorResponse:
		return outcomeOfResponse(apiErr)
	case isDecodeError:
		return "invalid_response"
	case errors.Is(err, context.Canceled): // also while a key is awaited
		return "canceled"
	case errors.Is(err, ErrNoAccessKey):
		return "no_access_key"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case isRequestError:
		return "no_response"
	}
	return "other"
}

func outcomeOfResponse(e *APIError) string {
	switch {
	case e.KeyRejected:
		return "key_rejected"
	case e.HTTPStatus == http.StatusTooManyRequests:
		return "rate_limited"
	case e.HTTPStatus/100 == 2:
		return "error_code"
	case e.HTTPStatus/100 == 4:
		return "http_4xx"
	case e.HTTPStatus/100 == 5:
		return "http_5xx"
	}
	return "http_other"
}

// NotProcessed reports whether err is an [*APIError] or a [*RequestError] with NotProcessed: the service has
// not processed the request of the call, so that it may be sent again, perhaps after a correction.
// NotProcessed returns false for nil, and for an error that is of no call or of invalid arguments.
// docs/reliability.md shows what to do after other errors, and names the rare exceptions.
func NotProcessed(err error) bool {
	apiErr, isErrorResponse := errors.AsType[*APIError](err)
	requestErr, isRequestError := errors.AsType[*RequestError](err)
	return isErrorResponse && apiErr.NotProcessed || isRequestError && requestErr.NotProcessed
}
