package paging

import (
	"errors"
	"net/http"

	"example.com/msgpush/internal/httpspec"
)

// The errors of a success without data, or without a list. Some services respond so to a page that does not exist.
var (
	ErrNoData = errors.New("data: expected a value, found none")
	ErrNoList = errors.New("data.list: expected a list, found none")
)

// IsWithoutList reports whether an error is [ErrNoData] or [ErrNoList].
func IsWithoutList(err error) bool { return errors.Is(err, ErrNoData) || errors.Is(err, ErrNoList) }

// MayMeanNoSuchPage reports whether an error response with an HTTP status and a code may mean that a page
// does not exist. With HTTP 200, every error code may. hasOtherMeaning means that the key was rejected, or
// that a retry may succeed.
func MayMeanNoSuchPage(status, code int, hasOtherMeaning bool) bool {
	if hasOtherMeaning {
		return false
	}
	if httpspec.IsSuccess(status) {
		return true
	}
	switch status {
	case http.StatusBadRequest,
		http.StatusNotFound,
		http.StatusGone,
		http.StatusRequestedRangeNotSatisfiable,
		http.StatusUnprocessableEntity,
		http.StatusNotImplemented:
		return true
	case http.StatusInternalServerError:
		return code != 0 // an envelope
	}
	return false
}
