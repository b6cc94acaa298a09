package msgpushtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"example.com/msgpush/internal/lenient"
)

// The codes of error responses. The API document shows only 200, for success.
const (
	CodeBadRequest       = 400 // the query or the body is invalid
	CodeAccessKey        = 401 // the access key is missing or not accepted
	CodeNotFound         = 404 // there is no such operation, or no record with the id
	CodeMethodNotAllowed = 405 // the operation has another method
	CodeContentType      = 415 // the Content-Type of a POST is not application/json
)

// A rejection is the content of an error response.
type rejection struct {
	code int
	msg  string
}

func reject(code int, format string, args ...any) *rejection {
	return &rejection{code, fmt.Sprintf(format, args...)}
}

// reportRejection stores an error text for the test if the server has the option FailOnRejection.
func (s *Server) reportRejection(r *http.Request, rejected *rejection) {
	if !s.failOnRejection {
		return
	}
	s.addMisuse(fmt.Sprintf("the server rejected %s %s: code %d: %s", r.Method, r.URL.Path, rejected.code, rejected.msg))
}

// readQuery returns the query of a request, which must have the parameters and no others.
func readQuery(r *http.Request, parameters []string) (url.Values, *rejection) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, reject(CodeBadRequest, "the query is malformed")
	}
	for name, values := range query {
		if !slices.Contains(parameters, name) {
			return nil, reject(CodeBadRequest, "the operation has no query parameter %q", name)
		}
		if len(values) > 1 {
			return nil, reject(CodeBadRequest, "the query parameter %q occurs %d times", name, len(values))
		}
	}
	for _, name := range parameters {
		if query.Get(name) == "" {
			return nil, reject(CodeBadRequest, "the query has no %s", name)
		}
	}
	return query, nil
}

// readBody returns the body of a request, which must be JSON. Without hasBody, there must be none.
func readBody(r *http.Request, hasBody bool) ([]byte, *rejection) {
	if !hasBody {
		if r.ContentLength != 0 {
			return nil, reject(CodeBadRequest, "the operation has no body")
		}
		return nil, nil
	}
	contentType := r.Header.Get("Content-Type")
	mediaType, _, _ := mime.ParseMediaType(contentType)
	if mediaType != "application/json" {
		return nil, reject(CodeContentType, "the Content-Type header is %q, not application/json", contentType)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, reject(CodeBadRequest, "the body cannot be read: %v", err)
	}
	return body, nil
}

// decodeObject decodes a JSON object that has only members of a struct.
func decodeObject(body []byte, to any) *rejection {
	isObject := json.Valid(body) && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{"))
	if !isObject {
		return reject(CodeBadRequest, "the body is not a JSON object")
	}
	if err := json.Unmarshal(body, to); err != nil {
		return reject(CodeBadRequest, "the body is not as the API document shows it: %s", reasonOf(err, to))
	}
	var object any
	_ = json.Unmarshal(body, &object) // is valid
	if name := unknownMember(reflect.TypeOf(to), "", object); name != "" {
		return reject(CodeBadRequest, "the body is not as the API document shows it: unknown member %q", name)
	}
	return nil
}

// unknownMember returns the path of a member that is not a field of t, or "". It compares letter case, which
// encoding/json ignores, but many services do not.
func unknownMember(t reflect.Type, path string, value any) string {
	object, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		member := path + name
		if lenient.KnownPath(t, member) != member {
			return member
		}
		if unknown := unknownMember(t, member+".", object[name]); unknown != "" {
			return unknown
		}
	}
	return ""
}

// reasonOf returns the text of an error of encoding/json for a value, without the types of Go, since clients
// in other languages send requests too.
func reasonOf(err error, to any) string {
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	expected := "an integer"
	switch typeErr.Type.Kind() {
	case reflect.Struct:
		expected = "an object"
	case reflect.String:
		expected = "a string"
	}
	text := "expected " + expected + ", found " + typeErr.Value
	if member := lenient.KnownPath(reflect.TypeOf(to), typeErr.Field); member != "" {
		return member + ": " + text
	}
	return text
}
