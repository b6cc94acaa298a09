package msgpushtest

import (
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

	"example.com/msgpush"
)

// The codes of error responses. The API document shows only 200, for success.
const (
	CodeBadRequest       = 400 // the query or the body is invalid
	CodeAccessKey        = 401 // the access key is missing or not accepted
	CodeNotFound         = 404 // there is no such operation, or no record with the id
	CodeMethodNotAllowed = 405 // the operation has another method
	CodeContentType      = 415 // the Content-Type of a POST is not application/json
	CodeRateLimit        = 429 // the limit of SetRateLimit is exceeded
)

// An operation states what its requests may contain. data returns the data of the response, and is
// called without mu, since it may call the function of UpdateBetweenPages. If data is nil, a
// success has no data.
type operation struct {
	query []string // the names of the query parameters
	body  []string // the names of the members of the body; nil: the request has no body
	data  func(*Server, url.Values, object) (any, *rejection)
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

var errAccessKey = reject(CodeAccessKey, "the access-key header is missing, or the server does not accept its key")

// An envelope is the body of a response. Without data, it has no data member: in the API document,
// data is an object, and null is not an object.
type envelope struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data any    `json:"data,omitempty"`
}

// respond sends the usual response: the data of the operation or an error response.
func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	e := envelope{Code: 200, Msg: "success"}
	data, rejected := s.data(w, r)
	if rejected != nil {
		e.Code, e.Msg = rejected.code, rejected.msg
		s.reportRejection(r, rejected)
	} else {
		e.Data = data
	}
	body, _ := json.Marshal(e) // the records have no field that cannot be encoded
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // fails if the connection has ended or the status allows no body
}

// reportRejection fails the test of a server with the option FailOnRejection.
func (s *Server) reportRejection(r *http.Request, rejected *rejection) {
	if !s.failOnRejection {
		return
	}
	s.lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("the server rejected %s %s: code %d: %s", r.Method, r.URL.Path, rejected.code, rejected.msg)
	if !s.test.ended {
		s.test.tb.Errorf("msgpushtest: %s", s.redact(text))
	}
}

// maxRequestBytes limits the body that an operation accepts. record stores at most maxRequestBytes
// + 1 bytes of a body, but a function of [Respond] can read the whole body.
const maxRequestBytes = 1 << 20

// data checks a request and returns the data of its operation.
func (s *Server) data(w http.ResponseWriter, r *http.Request) (any, *rejection) {
	if !s.acceptKey(r.Header.Get("access-key")) {
		return nil, errAccessKey
	}
	requested := specified[r.URL.Path]
	op, ok := operations[requested.Name]
	if !ok {
		return nil, reject(CodeNotFound, "there is no operation at %s", r.URL.Path)
	}
	if r.Method != requested.Method {
		return nil, reject(CodeMethodNotAllowed, "the method of %s is %s, not %s", r.URL.Path, requested.Method, r.Method)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, reject(CodeBadRequest, "the query is malformed")
	}
	for name, values := range query {
		if !slices.Contains(op.query, name) {
			return nil, reject(CodeBadRequest, "the operation has no query parameter %q", name)
		}
		if len(values) > 1 {
			return nil, reject(CodeBadRequest, "the query parameter %q occurs %d times", name, len(values))
		}
	}
	if op.body == nil {
		if r.ContentLength != 0 {
			return nil, reject(CodeBadRequest, "the operation has no body")
		}
		return op.dataOf(s, query, nil)
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, _ := mime.ParseMediaType(contentType); mediaType != "application/json" {
		return nil, reject(CodeContentType, "the Content-Type header is %q, not application/json", contentType)
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		return nil, reject(CodeBadRequest, "the body cannot be read: %v", err)
	}
	body, rejected := readObject("the body", raw, op.body...)
	if rejected != nil {
		return nil, rejected
	}
	return op.dataOf(s, query, body)
}

func (op operation) dataOf(s *Server, query url.Values, body object) (any, *rejection) {
	if op.data == nil {
		return nil, nil
	}
	return op.data(s, query, body)
}

// required returns a query parameter that must not be empty.
func required(query url.Values, name string) (string, *rejection) {
	value := query.Get(name)
	if value == "" {
		return "", reject(CodeBadRequest, "the query has no %s", name)
	}
	return value, nil
}

// detail returns an operation that returns the record whose id is a query parameter.
func detail[T any](parameter string, records func(*Records) []T, id func(T) int64) operation {
	return operation{
		query: []string{parameter},
		data: func(s *Server, query url.Values, _ object) (any, *rejection) {
			want, rejected := required(query, parameter)
			if rejected != nil {
				return nil, rejected
			}
			s.lock()
			defer s.mu.Unlock()
			for _, record := range records(&s.store.records) {
				if strconv.FormatInt(id(record), 10) == want {
					return record, nil
				}
			}
			return nil, reject(CodeNotFound, "there is no record with the %s %q", parameter, want)
		},
	}
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
	return operation{
		body: []string{"current", "pageSize"},
		data: func(s *Server, _ url.Values, body object) (any, *rejection) { return pageOf(s, body, records) },
	}
}

func forwardLogList(s *Server, _ url.Values, body object) (any, *rejection) {
	params, rejected := body.member("params", "ruleId", "matchResult")
	if rejected != nil {
		return nil, rejected
	}
	var want msgpush.ForwardLogParams
	if rejected := params.decode(&want); rejected != nil {
		return nil, rejected
	}
	filter := string(body["params"])
	return pageOf(s, body, func(*Records) []msgpush.ForwardLog { return s.matching(filter, want) })
}

// pageOf returns the requested page of list. It first calls the function of UpdateBetweenPages if a
// call is due, so the caller must not hold mu. list is called before and after that function, with
// mu held.
func pageOf[T any](s *Server, body object, list func(*Records) []T) (any, *rejection) {
	current, rejected := body.positive("current", 1)
	if rejected != nil {
		return nil, rejected
	}
	size, rejected := body.positive("pageSize", msgpush.DefaultPageSize)
	if rejected != nil {
		return nil, rejected
	}
	s.lock()
	onlyPage := len(list(&s.store.records)) <= size
	s.mu.Unlock()
	s.updateBeforePage(listKey{reflect.TypeFor[T](), string(body["params"])}, current, onlyPage)
	s.lock()
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

// An object is a JSON object whose members are not decoded.
type object map[string]json.RawMessage

// readObject reads an object that has only members with these names.
func readObject(what string, raw []byte, names ...string) (object, *rejection) {
	var o object
	if json.Unmarshal(raw, &o) != nil || o == nil {
		return nil, reject(CodeBadRequest, "%s is not a JSON object", what)
	}
	for name := range o {
		if !slices.Contains(names, name) {
			return nil, reject(CodeBadRequest, "%s has the member %q, which the API document does not show", what, name)
		}
	}
	return o, nil
}

// member returns the named member, which must be an object that has only members with these names.
// It returns nil if the member is missing.
func (o object) member(name string, names ...string) (object, *rejection) {
	raw, ok := o[name]
	if !ok {
		return nil, nil
	}
	return readObject(name, raw, names...)
}

// decode decodes o into a struct. No member may be null.
func (o object) decode(to any) *rejection {
	for name, raw := range o {
		if string(raw) == "null" {
			return reject(CodeBadRequest, "%s is null", name)
		}
	}
	raw, _ := json.Marshal(o) // cannot fail: o was decoded from JSON
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(raw, to)); ok {
		return reject(CodeBadRequest, "%s is a %s, not of the type %v", typeErr.Field, typeErr.Value, typeErr.Type)
	}
	return nil
}

// positive returns the named member, which must be from 1 to math.MaxInt32, or def if it is
// missing.
func (o object) positive(name string, def int) (int, *rejection) {
	raw, ok := o[name]
	if !ok {
		return def, nil
	}
	var n int64
	err := json.Unmarshal(raw, &n)
	switch {
	case err != nil || string(raw) == "null":
		return 0, reject(CodeBadRequest, "%s is not an integer of at most 64 bits", name)
	case n < 1 || n > math.MaxInt32:
		return 0, reject(CodeBadRequest, "%s is %d, not between 1 and %d", name, n, math.MaxInt32)
	}
	return int(n), nil
}
