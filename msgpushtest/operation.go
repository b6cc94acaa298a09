package msgpushtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"example.com/msgpush"
)

// The codes of error responses. The API document shows only 200, for success.
const (
	CodeBadRequest       = 400 // the query or the body is invalid
	CodeAccessKey        = 401 // the access key is missing or not accepted
	CodeNotFound         = 404 // there is no such operation, or no record with the id
	CodeMethodNotAllowed = 405 // the operation has another method
	CodeContentType      = 415 // the Content-Type of a POST is not application/json
)

// An operation serves the requests of one operation of the API document.
type operation struct {
	// parameters are the names of the query parameters. A request must have each of them once.
	parameters []string
	// data returns the data of the response, or nil if it has none. query has the parameters. body is
	// nil if the method is GET or if there are parameters, and JSON otherwise. data is called without
	// mu.
	data func(s *Server, query url.Values, body []byte) (any, *rejection)
}

// specified has the operations by path.
var specified = byPath()

func byPath() map[string]msgpush.Operation {
	all := map[string]msgpush.Operation{}
	for _, op := range msgpush.Operations() {
		if op.Specified() {
			all[op.Path] = op
		}
	}
	return all
}

// A rejection is the content of an error response.
type rejection struct {
	code int
	msg  string
}

func reject(code int, format string, args ...any) *rejection {
	return &rejection{code, fmt.Sprintf(format, args...)}
}

// An envelope is the body of a response. Without data, it has no data member: in the API document,
// data is an object, and null is not an object.
type envelope struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data any    `json:"data,omitempty"`
}

// A responder sends the usual response to one request.
type responder struct {
	server     *Server
	badRecords []*queuedFault // the faults of BadRecord that apply to the request
}

// respond sends the data of the operation or an error response.
func (u *responder) respond(w http.ResponseWriter, r *http.Request) {
	e := envelope{Code: 200, Msg: "success"}
	data, rejected := u.server.data(r)
	if rejected != nil {
		e.Code, e.Msg = rejected.code, rejected.msg
		u.server.reportRejection(r, rejected)
	} else {
		var used []Fault
		e.Data, used = u.server.useBadRecords(u.badRecords, data)
		for _, f := range used {
			w = &faultWriter{ResponseWriter: w, fault: f}
		}
	}
	body, _ := json.Marshal(e) // the records have no field that cannot be encoded
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // fails if the connection has ended or the status allows no body
}

// reportRejection stores an error text for the test if the server has the option FailOnRejection.
func (s *Server) reportRejection(r *http.Request, rejected *rejection) {
	if !s.failOnRejection {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.misuses = append(s.misuses,
		fmt.Sprintf("the server rejected %s %s: code %d: %s", r.Method, r.URL.Path, rejected.code, rejected.msg))
}

// data checks a request and returns the data of its operation.
func (s *Server) data(r *http.Request) (any, *rejection) {
	if rejected := s.checkKey(r.Header.Get("access-key")); rejected != nil {
		return nil, rejected
	}
	requested := specified[r.URL.Path]
	op, ok := operations[requested.Name]
	if !ok {
		return nil, reject(CodeNotFound, "there is no operation at %s", r.URL.Path)
	}
	if r.Method != requested.Method {
		return nil, reject(CodeMethodNotAllowed, "the method of %s is %s, not %s", r.URL.Path, requested.Method, r.Method)
	}
	query, rejected := readQuery(r, op.parameters)
	if rejected != nil {
		return nil, rejected
	}
	hasBody := r.Method != http.MethodGet && len(op.parameters) == 0
	body, rejected := readBody(r, hasBody)
	if rejected != nil {
		return nil, rejected
	}
	return op.data(s, query, body)
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
	if mediaType, _, _ := mime.ParseMediaType(contentType); mediaType != "application/json" {
		return nil, reject(CodeContentType, "the Content-Type header is %q, not application/json", contentType)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, reject(CodeBadRequest, "the body cannot be read: %v", err)
	}
	return body, nil
}

// detail returns an operation that returns the record whose id is a query parameter.
func detail[T any](parameter string, records func(*Records) []T, id func(T) int64) operation {
	data := func(s *Server, query url.Values, _ []byte) (any, *rejection) {
		want := query.Get(parameter)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, record := range records(&s.store.records) {
			if strconv.FormatInt(id(record), 10) == want {
				return record, nil
			}
		}
		return nil, reject(CodeNotFound, "there is no record with the %s %q", parameter, want)
	}
	return operation{parameters: []string{parameter}, data: data}
}

// A mailChannel encodes with its password: a [msgpush.Secret] encodes to "[redacted]".
type mailChannel struct {
	msgpush.MailChannel
	Password string `json:"password"`
}

func mailChannels(r *Records) (channels []mailChannel) {
	for _, channel := range r.MailChannels {
		channels = append(channels, mailChannel{channel, string(channel.Password)})
	}
	return channels
}

// list returns an operation that returns a page of a list, without filters.
func list[T any](records func(*Records) []T) operation {
	return operation{data: func(s *Server, _ url.Values, body []byte) (any, *rejection) {
		var request msgpush.PageRequest
		if rejected := decodeObject(body, &request); rejected != nil {
			return nil, rejected
		}
		return pageOf(s, request, records)
	}}
}

func forwardLogList(s *Server, _ url.Values, body []byte) (any, *rejection) {
	var request msgpush.ForwardLogRequest
	if rejected := decodeObject(body, &request); rejected != nil {
		return nil, rejected
	}
	return pageOf(s, request.PageRequest, func(*Records) []msgpush.ForwardLog { return s.matching(request.Params) })
}

// decodeObject decodes a JSON object that has only members of a struct.
func decodeObject(body []byte, to any) *rejection {
	if !json.Valid(body) {
		return reject(CodeBadRequest, "the body is not a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return reject(CodeBadRequest, "the body is not as the API document shows it: %s", reasonOf(err))
	}
	return nil
}

// reasonOf returns the text of an error of encoding/json without the types of Go, since clients in
// other languages send requests too.
func reasonOf(err error) string {
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	expected := "an integer"
	if typeErr.Type.Kind() == reflect.Struct {
		expected = "an object"
	}
	member := ""
	if typeErr.Field != "" {
		member = typeErr.Field + ": "
	}
	return member + "expected " + expected + ", found " + typeErr.Value
}

// pageOf returns the requested page of list. 0 means the default. If a call of the function of
// UpdateBetweenPages is due, pageOf calls it first, so the caller must not hold mu. list is called with
// mu held.
func pageOf[T any](s *Server, request msgpush.PageRequest, list func(*Records) []T) (any, *rejection) {
	current := cmp.Or(request.Current, 1)
	size := cmp.Or(request.PageSize, msgpush.DefaultPageSize)
	if current < 1 || current > math.MaxInt32 {
		return nil, reject(CodeBadRequest, "current is %d, not between 1 and %d", current, math.MaxInt32)
	}
	if size < 1 || size > math.MaxInt32 {
		return nil, reject(CodeBadRequest, "pageSize is %d, not between 1 and %d", size, math.MaxInt32)
	}
	s.updateBeforePage()
	s.mu.Lock()
	defer s.mu.Unlock()
	records := list(&s.store.records)
	page := msgpush.Page[T]{
		PageNum:  current,
		PageSize: size,
		Total:    int64(len(records)),
		Pages:    len(records)/size + min(1, len(records)%size), // rounded up; on 32 bits, len+size-1 could overflow
		List:     []T{},
	}
	if current <= page.Pages {
		start := (current - 1) * size
		page.List = slices.Clone(records[start:min(start+size, len(records))])
	}
	return page, nil
}
