package msgpushtest

import (
	"cmp"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"example.com/msgpush"
)

// An operation serves the requests of one operation of the API document.
type operation struct {
	// parameters are the names of the query parameters. A request must have each of them once.
	parameters []string
	// data returns the data of the response, or nil if it has none. query has the parameters. body is nil
	// if the method is GET or if there are parameters, and JSON otherwise. data is called without mu.
	data func(s *Server, query url.Values, body []byte) (any, *rejection)
}

// specified has the operations by path: in the API document, no path has two methods.
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

// An envelope is the body of a response. Without data, it has no data member: in the API document, data is an
// object, and null is not an object.
type envelope struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data any    `json:"data,omitempty"`
}

const codeSuccess = 200

func success(data any) envelope { return envelope{Code: codeSuccess, Msg: "success", Data: data} }

// A responder sends the usual response to one request.
type responder struct {
	server     *Server
	badRecords []*queuedFault // the faults of BadRecord that apply to the request
}

// respond sends the data of the operation, with the records that a fault makes bad, or an error response.
func (u *responder) respond(w http.ResponseWriter, r *http.Request) {
	data, rejected := u.server.data(r)
	data, used := u.server.useBadRecords(u.badRecords, data)
	e := success(data)
	if rejected != nil {
		u.server.reportRejection(r, rejected)
		e.Code, e.Msg = rejected.code, rejected.msg
	}
	for _, f := range used {
		w = &faultWriter{ResponseWriter: w, fault: f}
	}
	send(w, e)
}

// send sends an envelope.
func send(w http.ResponseWriter, e envelope) {
	body, _ := json.Marshal(e) // the records have no field that cannot be encoded
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // fails if the connection has ended or the status allows no body
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
		return pageOf(s, request, func() []T { return records(&s.store.records) })
	}}
}

func forwardLogList(s *Server, _ url.Values, body []byte) (any, *rejection) {
	var request msgpush.ForwardLogRequest
	if rejected := decodeObject(body, &request); rejected != nil {
		return nil, rejected
	}
	return pageOf(s, request.PageRequest, func() []msgpush.ForwardLog { return s.store.matching(request.Params) })
}

// pageOf returns the requested page of list. 0 means the default. pageOf may call the function of
// UpdateBetweenPages, so the caller must not hold mu. list is called with mu held.
func pageOf[T any](s *Server, request msgpush.PageRequest, list func() []T) (any, *rejection) {
	current := cmp.Or(request.Current, 1)
	size := cmp.Or(request.PageSize, msgpush.DefaultPageSize)
	if current < 1 || current > math.MaxInt32 {
		return nil, reject(CodeBadRequest, "current is %d, not between 1 and %d", current, math.MaxInt32)
	}
	if size < 1 || size > math.MaxInt32 {
		return nil, reject(CodeBadRequest, "pageSize is %d, not between 1 and %d", size, math.MaxInt32)
	}
	s.updateBeforePage(current)
	s.mu.Lock()
	defer s.mu.Unlock()
	records := list()
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
