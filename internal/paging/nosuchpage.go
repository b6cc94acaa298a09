package paging

import (
	"errors"
	"net/http"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
)

// ErrNoSuchPage is wrapped by an error that may mean that a page does not exist.
var ErrNoSuchPage = errors.New("the page may not exist")

// The errors of a success without data, or without a list. Some services respond so to a page that does
// not exist.
var (
	ErrNoData = errs.Hide("data: expected a value, found none", ErrNoSuchPage)
	ErrNoList = errs.Hide("data.list: expected a list, found none", ErrNoSuchPage)
)

// MayMeanNoSuchPage reports whether an error response with an HTTP status and a code may mean that a page
// does not exist. With HTTP 200, every error code may.
func MayMeanNoSuchPage(status, code int) bool {
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
