// Package msgpushtest provides a stand-in for the message push service, to
// test against without a network, an account or an access key.
//
// A [Server] listens on loopback and answers the four operations that the
// document of the interface specifies, from the [Records] that it is given. In a
// test:
//
//	srv := msgpushtest.New(t)
//	srv.SetRecords(msgpushtest.Seed())
//	page, err := srv.Client().ForwardRuleList(ctx, msgpush.PageRequest{})
//
// In a program, [NewServer] and [Server.Close] take the place of [New].
//
// # State, faults, requests
//
// Records can be added, changed and removed while the server runs, with
// [Server.Update] from any goroutine or, with [Server.BeforeAnswer], between two
// requests of a walk. [Server.Inject] has it answer the next requests, or all,
// with a [Fault]: a refusal, a broken connection, a page of HTML. What arrived is
// told by [Server.Requests].
//
// # Choices of the stand-in
//
// The document leaves open how the service refuses and what it takes for
// granted. Where the stand-in must do something, the choice is its own, and
// the real service may do something else:
//
//   - A refusal has HTTP status 200, one of the Code constants as its code, and
//     null as its data.
//   - A body without current or pageSize asks for page 1, or for
//     [msgpush.DefaultPageSize] records. Numbers below 1 are refused.
//   - A body without params chooses every record.
//   - Members and query parameters that the document does not show are refused,
//     and so are null, and a GET with a body.
//   - A page beyond the last has an empty list and the number that was asked
//     for.
//   - Records are listed in the order in which they were set.
package msgpushtest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.com/msgpush"
)

// The codes of the stand-in's refusals. They are its own: the document shows
// none but 200, for success.
const (
	CodeBadRequest       = 400 // the query or the body is not what the operation takes
	CodeAccessKey        = 401 // the access key is missing, or not the server's
	CodeNotFound         = 404 // there is no such operation, or no record with that id
	CodeMethodNotAllowed = 405 // the operation has another method
	CodeContentType      = 415 // the body is not declared to be application/json
)

// The operations that the server answers, as [msgpush.Operation.String] names
// them.
const (
	MailDetail      = "mail channel detail"
	MPList          = "official-account channel list"
	ForwardRuleList = "message rule list"
	ForwardLogList  = "trigger record list"
)

// Records is what a [Server] holds. The zero value is an account without any.
type Records struct {
	MailChannels []msgpush.MailChannel
	MPChannels   []msgpush.MPChannel
	ForwardRules []msgpush.ForwardRule
	ForwardLogs  []msgpush.ForwardLog
}

func (r Records) clone() Records {
	return Records{
		MailChannels: slices.Clone(r.MailChannels),
		MPChannels:   slices.Clone(r.MPChannels),
		ForwardRules: slices.Clone(r.ForwardRules),
		ForwardLogs:  slices.Clone(r.ForwardLogs),
	}
}

// A Server is a stand-in for the service on loopback. Make it with [New] or
// [NewServer]. It is safe for concurrent use.
type Server struct {
	// URL is the base URL, of the form http://127.0.0.1:port.
	URL string
	// AccessKey is the key that requests must carry, another one for each
	// server, until [Server.SetAccessKey] sets another. Changing it has no
	// effect.
	AccessKey string

	http   *httptest.Server
	client *msgpush.Client
	closed chan struct{} // closed when the server is about to close
	close  sync.Once

	mu           sync.Mutex
	firstKey     string
	key          string
	records      Records // replaced as a whole, its slices never change
	beforeAnswer func(Request)
	faults       []Fault
	requests     []Request
	arrival      chan struct{} // closed at the next one
}

// NewServer starts a server without records. Like [httptest.NewServer] it panics
// if it cannot listen.
func NewServer() *Server {
	key := "test-" + rand.Text()
	s := &Server{AccessKey: key, firstKey: key, key: key, closed: make(chan struct{}), arrival: make(chan struct{})}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = s.http.URL
	client, err := msgpush.NewClient(s.URL, key, msgpush.WithRetry(msgpush.RetryPolicy{MinWait: time.Millisecond}))
	if err != nil {
		panic(err) // the URL and the key are good
	}
	s.client = client
	return s
}

// closeGrace is how long Close lets answers be given that are under way.
const closeGrace = 200 * time.Millisecond

// Close stops the server. Answers that are under way are given, or broken off if
// that takes long, as with those that are delayed or endless. It may be called
// more than once, but not by what the server calls.
func (s *Server) Close() {
	s.close.Do(func() { close(s.closed) })
	timer := time.AfterFunc(closeGrace, s.http.CloseClientConnections)
	defer timer.Stop()
	s.http.Close()
}

// Client returns a client of the server with its first access key. It is like
// any other but for its retries, which wait for milliseconds.
func (s *Server) Client() *msgpush.Client { return s.client }

// SetAccessKey has the server take another access key than before, and no more
// the one before.
func (s *Server) SetAccessKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// Records returns a copy of what the server holds.
func (s *Server) Records() Records { return s.snapshot().clone() }

// SetRecords replaces the server's records with a copy of r.
func (s *Server) SetRecords(r Records) {
	s.Update(func(records *Records) { *records = r.clone() })
}

// Update changes the server's records by f, which adds to them, changes or
// removes them as it likes, all at once: each answer is given from the records as
// they were before or as they are after. It must not call the server.
func (s *Server) Update(f func(*Records)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := s.records.clone()
	f(&records)
	s.records = records
}

// BeforeAnswer has f called with each request before it is answered, in place of
// the function set before; nil calls none. It may change the server, such as its
// records between two requests of a walk, but not close it. Requests that come at
// once have it called at once.
func (s *Server) BeforeAnswer(f func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beforeAnswer = f
}

// snapshot returns the records as they are now, to be read only.
func (s *Server) snapshot() Records {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records
}

// A refusal is what is wrong with a request.
type refusal struct {
	code int
	msg  string
}

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// An operation is how the server answers one.
type operation struct {
	name   string
	method string
	query  []string // the parameters that it takes
	data   func(*Server, *http.Request) (any, *refusal)
}

// operations has the operations by their paths.
var operations = map[string]operation{
	"/api/open/mail/detail":      {MailDetail, http.MethodGet, []string{"mailId"}, (*Server).mailDetail},
	"/api/open/mp/list":          {MPList, http.MethodPost, nil, (*Server).mpList},
	"/api/open/forwardRule/list": {ForwardRuleList, http.MethodPost, nil, (*Server).forwardRuleList},
	"/api/open/forwardLog/list":  {ForwardLogList, http.MethodPost, nil, (*Server).forwardLogList},
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	request := s.record(r)
	s.mu.Lock()
	before := s.beforeAnswer
	s.mu.Unlock()
	if before != nil {
		before(request)
	}
	if fault, ok := s.nextFault(request.Operation); ok {
		fault.serve(s, w, r)
		return
	}
	s.answer(w, r)
}

// answer answers as the document says.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	envelope := msgpush.Envelope[any]{Code: 200, Msg: "success"}
	data, refused := s.data(w, r)
	if refused != nil {
		envelope.Code, envelope.Msg = refused.code, refused.msg
	} else {
		envelope.Data = data
	}
	writeJSON(w, envelope)
}

func writeJSON(w http.ResponseWriter, envelope msgpush.Envelope[any]) {
	body, err := json.Marshal(envelope)
	if err != nil {
		http.Error(w, "msgpushtest: the data to answer with is no JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // fails only where nobody listens any more
}

func (s *Server) isKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return key != "" && key == s.key
}

var otherKey = refuse(CodeAccessKey, "the access-key header is missing, or has another key than the server's")

// data returns the data of an operation, after the checks that are the same for
// all of them.
func (s *Server) data(w http.ResponseWriter, r *http.Request) (any, *refusal) {
	if !s.isKey(r.Header.Get("access-key")) {
		return nil, otherKey
	}
	op, ok := operations[r.URL.Path]
	if !ok {
		return nil, refuse(CodeNotFound, "there is no operation at %s", r.URL.Path)
	}
	if r.Method != op.method {
		return nil, refuse(CodeMethodNotAllowed, "%s takes %s, not %s", r.URL.Path, op.method, r.Method)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(CodeBadRequest, "the query is malformed")
	}
	for name, values := range query {
		if !slices.Contains(op.query, name) || len(values) > 1 {
			return nil, refuse(CodeBadRequest, "the operation takes no parameter %q, or not more than once", name)
		}
	}
	contentType := r.Header.Get("Content-Type")
	if mediaType, _, _ := mime.ParseMediaType(contentType); op.method == http.MethodPost && mediaType != "application/json" {
		return nil, refuse(CodeContentType, "the Content-Type header is %q, not application/json", contentType)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxRequestBytes)
	return op.data(s, r)
}

func (s *Server) mailDetail(r *http.Request) (any, *refusal) {
	if r.ContentLength != 0 {
		return nil, refuse(CodeBadRequest, "the operation takes no body")
	}
	id := r.URL.Query().Get("mailId")
	if id == "" {
		return nil, refuse(CodeBadRequest, "the query has no mailId")
	}
	for _, channel := range s.snapshot().MailChannels {
		if strconv.FormatInt(channel.ID, 10) == id {
			return mailChannelOnWire{channel, string(channel.Password)}, nil
		}
	}
	return nil, refuse(CodeNotFound, "there is no mail channel with the id %q", id)
}

// A mailChannelOnWire is a mail channel as the service sends it. A Secret encodes to
// "[redacted]".
type mailChannelOnWire struct {
	msgpush.MailChannel
	Password string `json:"password"`
}

func (s *Server) mpList(r *http.Request) (any, *refusal) {
	return listAll(r, s.snapshot().MPChannels)
}

func (s *Server) forwardRuleList(r *http.Request) (any, *refusal) {
	return listAll(r, s.snapshot().ForwardRules)
}

func (s *Server) forwardLogList(r *http.Request) (any, *refusal) {
	body, refused := readObject(r.Body, "current", "pageSize", "params")
	if refused != nil {
		return nil, refused
	}
	params, refused := body.member("params", "ruleId", "matchResult")
	if refused != nil {
		return nil, refused
	}
	ruleID, refused := params.integer("ruleId")
	if refused != nil {
		return nil, refused
	}
	matchResult, refused := params.integer("matchResult")
	if refused != nil {
		return nil, refused
	}
	var chosen []msgpush.ForwardLog
	for _, log := range s.snapshot().ForwardLogs {
		if (ruleID == nil || *ruleID == log.RuleID) && (matchResult == nil || *matchResult == int64(log.MatchResult)) {
			chosen = append(chosen, log)
		}
	}
	return pageOf(body, chosen)
}
