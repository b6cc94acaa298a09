package msgpushtest

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"

	"example.com/msgpush"
)

// maxRequestBytes bounds what the server reads of a request.
const maxRequestBytes = 1 << 20

// An object is a JSON object, its members not decoded yet.
type object map[string]json.RawMessage

// readObject reads an object that has no members but those named.
func readObject(r io.Reader, names ...string) (object, *refusal) {
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, refuse(CodeBadRequest, "the body cannot be read: %v", err)
	}
	return parseObject("the body", body, names...)
}

func parseObject(what string, raw []byte, names ...string) (object, *refusal) {
	var o object
	if json.Unmarshal(raw, &o) != nil || o == nil {
		return nil, refuse(CodeBadRequest, "%s is not a JSON object", what)
	}
	for name := range o {
		if !slices.Contains(names, name) {
			return nil, refuse(CodeBadRequest, "%s has the member %q, which the operation does not take", what, name)
		}
	}
	return o, nil
}

// member returns the member with that name, which is an object; nil if there is
// none.
func (o object) member(name string, names ...string) (object, *refusal) {
	raw, ok := o[name]
	if !ok {
		return nil, nil
	}
	return parseObject(name, raw, names...)
}

// integer returns the member with that name, nil if there is none.
func (o object) integer(name string) (*int64, *refusal) {
	raw, ok := o[name]
	if !ok {
		return nil, nil
	}
	var n int64
	if bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, &n) != nil {
		return nil, refuse(CodeBadRequest, "%s is not an integer", name)
	}
	return &n, nil
}

// pageNumber returns the member with that name, a number from 1 on.
func (o object) pageNumber(name string, missing int) (int, *refusal) {
	n, refused := o.integer(name)
	switch {
	case refused != nil:
		return 0, refused
	case n == nil:
		return missing, nil
	case *n < 1 || *n > math.MaxInt32:
		return 0, refuse(CodeBadRequest, "%s is %d, not between 1 and %d", name, *n, math.MaxInt32)
	default:
		return int(*n), nil
	}
}

// listAll answers a list operation whose body is a page request alone.
func listAll[T any](r *http.Request, records []T) (any, *refusal) {
	body, refused := readObject(r.Body, "current", "pageSize")
	if refused != nil {
		return nil, refused
	}
	return pageOf(body, records)
}

// pageOf returns the page of the records that a body asks for.
func pageOf[T any](body object, records []T) (any, *refusal) {
	current, refused := body.pageNumber("current", 1)
	if refused != nil {
		return nil, refused
	}
	size, refused := body.pageNumber("pageSize", msgpush.DefaultPageSize)
	if refused != nil {
		return nil, refused
	}
	page := msgpush.Page[T]{
		PageNum:  current,
		PageSize: size,
		Total:    int64(len(records)),
		Pages:    (len(records) + size - 1) / size,
		List:     []T{},
	}
	if current <= page.Pages {
		start := (current - 1) * size
		page.List = records[start:min(start+size, len(records))]
	}
	return page, nil
}
