package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// A service responds with one mail channel and a list of trigger records, which ends with a full page. It
// is an [http.RoundTripper] for calls in memory and an [http.Handler] for calls over TCP. Its bodies are
// prepared, so a call takes little more than the time of its client.
type service struct {
	pages  [][]byte
	behind []byte // the response to a request for a page behind the last one
}

var mailBody = []byte(`{"code":200,"msg":"请求成功","data":{"id":5,"mailName":"告警邮箱","mailCode":"alert-mail",` +
	`"account":"alert@example.com","password":"correct-horse-battery","smtpServer":"smtp.example.com",` +
	`"smtpSsl":1,"smtpPort":465,"createTime":"2026-02-26 23:02:12"}}`)

func newService(tb testing.TB, pages, pageSize int) *service {
	tb.Helper()
	response := func(number int, list []msgpush.ForwardLog) []byte {
		data := page{
			PageNum:  number,
			PageSize: pageSize,
			Total:    int64(pages * pageSize),
			Pages:    pages,
			List:     list,
		}
		body, err := json.Marshal(msgpush.Envelope[page]{Code: 200, Msg: "请求成功", Data: data})
		require.NoError(tb, err)
		return body
	}
	s := &service{behind: response(pages+1, []msgpush.ForwardLog{})}
	for i := range pages {
		s.pages = append(s.pages, response(i+1, records(i*pageSize, pageSize)))
	}
	return s
}

const firstID = 1_000_000_000

// records returns n realistic trigger records from an offset of the list: few rules, some errors, mostly
// Chinese text.
func records(offset, n int) []msgpush.ForwardLog {
	list := make([]msgpush.ForwardLog, n)
	newest := time.Date(2026, 11, 5, 18, 0, 0, 0, time.UTC)
	for i := range list {
		list[i] = msgpush.ForwardLog{
			ID:              int64(firstID + offset + i),
			RuleID:          int64(300 + i%7),
			RuleName:        "严重告警转值班",
			SourceType:      1,
			SourceTypeName:  "渠道消息",
			RequestIP:       fmt.Sprintf("203.0.113.%d**", i%9+1),
			MatchResult:     1,
			MatchResultName: "已转发",
			ShortCodes:      fmt.Sprintf("%04x****,%04x****", i*7919%0x10000, i*104729%0x10000),
			CreateTime:      msgpush.DateTime(newest.Add(-time.Duration(i) * time.Minute).Format(time.DateTime)),
		}
		if i%10 == 0 {
			list[i].MatchResult, list[i].MatchResultName, list[i].ErrorMessage = 2, "转发失败", "target 2: connection refused"
		}
	}
	return list
}

// respond returns the body of the response to a request.
func (s *service) respond(path string, body io.Reader) ([]byte, error) {
	switch path {
	case mailDetailPath:
		return mailBody, nil
	case forwardLogPath:
		return s.page(body)
	}
	return nil, fmt.Errorf("unknown path %s", path)
}

func (s *service) page(body io.Reader) ([]byte, error) {
	if len(s.pages) == 1 {
		return s.pages[0], nil
	}
	var r msgpush.PageRequest
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return nil, err
	}
	if r.Current > len(s.pages) {
		return s.behind, nil
	}
	return s.pages[r.Current-1], nil
}

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if req.Body != nil {
		body = req.Body
		defer req.Body.Close()
	}
	respBody, err := s.respond(req.URL.Path, body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status:        "200 OK",
		StatusCode:    http.StatusOK,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {"application/json;charset=UTF-8"}},
		Body:          io.NopCloser(bytes.NewReader(respBody)),
		ContentLength: -1, // unknown, as in a chunked response
		Request:       req,
	}, nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	respBody, err := s.respond(req.URL.Path, req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	_, _ = w.Write(respBody) // fails if the client has disconnected
}
