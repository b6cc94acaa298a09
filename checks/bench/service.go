package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"example.com/msgpush"
)

// A fakeService responds like the service, with one mail channel and a list of
// trigger records. It is an [http.RoundTripper] for calls in memory and an
// [http.Handler] for calls over TCP. Bodies are built in advance (later pages are
// patched copies of the first), so a call takes little more than the time of its
// client.
type fakeService struct {
	pages, pageSize int
	delay           time.Duration // before each response

	mail  []byte
	first []byte // the first page, the template of the others
	empty []byte // the pages behind the last one
	num   int    // offset of the page number in first
	ids   []int  // offsets of the ids in first
}

// A mailChannel encodes its password, which [msgpush.Secret] does not.
type mailChannel struct {
	msgpush.MailChannel
	Password string `json:"password"`
}

// Page numbers and ids have a fixed width, so that page can replace them in a copy.
const (
	numWidth = 7
	firstID  = 1_000_000_000
)

func newFakeService(pages, pageSize int, delay time.Duration) (*fakeService, error) {
	s := &fakeService{pages: pages, pageSize: pageSize, delay: delay}
	var err error
	mail := mailChannel{MailChannel: msgpush.MailChannel{
		ID: 5, MailName: "告警邮箱", MailCode: "alert-mail", Account: "alert@example.com",
		SMTPServer: "smtp.example.com", SMTPSSL: 1, SMTPPort: 465, CreateTime: "2026-02-26 23:02:12",
	}, Password: "correct-horse-battery"}
	s.mail, err = json.Marshal(msgpush.Envelope[mailChannel]{Code: 200, Msg: "请求成功", Data: mail})
	if err != nil {
		return nil, err
	}
	first := page{PageNum: 1, PageSize: pageSize, Total: int64(pages * pageSize), Pages: pages, List: records(pageSize)}
	body, err := json.Marshal(msgpush.Envelope[page]{Code: 200, Msg: "请求成功", Data: first})
	if err != nil {
		return nil, err
	}
	s.empty, err = json.Marshal(msgpush.Envelope[page]{Code: 200, Msg: "请求成功", Data: page{
		PageNum:  pages + 1,
		PageSize: pageSize,
		Total:    int64(pages * pageSize),
		Pages:    pages,
		List:     []msgpush.ForwardLog{},
	}})
	if err != nil {
		return nil, err
	}
	const numName, idName = `"pageNum":`, `{"id":`
	s.first = bytes.Replace(body, []byte(numName+"1"), fmt.Appendf(nil, "%s%*d", numName, numWidth, 1), 1)
	s.num = bytes.Index(s.first, []byte(numName)) + len(numName)
	for i := s.num; len(s.ids) < pageSize; {
		i += bytes.Index(s.first[i:], []byte(idName)) + len(idName)
		s.ids = append(s.ids, i)
	}
	return s, nil
}

// records returns n realistic trigger records: few rules, some errors, mostly Chinese
// text.
func records(n int) []msgpush.ForwardLog {
	list := make([]msgpush.ForwardLog, n)
	newest := time.Date(2026, 11, 5, 18, 0, 0, 0, time.UTC)
	for i := range list {
		list[i] = msgpush.ForwardLog{
			ID:              int64(firstID + i),
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
func (s *fakeService) respond(ctx context.Context, path string, body io.Reader) ([]byte, error) {
	if s.delay > 0 {
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case strings.HasSuffix(path, mailDetailPath):
		return s.mail, nil
	case !strings.HasSuffix(path, forwardLogPath):
		return nil, fmt.Errorf("unknown path %s", path)
	case s.pages == 1:
		return s.first, nil
	}
	var r msgpush.PageRequest
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return nil, err
	}
	if r.Current > s.pages {
		return s.empty, nil
	}
	return s.page(r.Current), nil
}

func (s *fakeService) page(number int) []byte {
	b := bytes.Clone(s.first)
	copy(b[s.num:], fmt.Sprintf("%*d", numWidth, number))
	for i, at := range s.ids {
		id := firstID + (number-1)*s.pageSize + i
		for digit := at + 9; digit >= at; digit-- {
			b[digit] = byte('0' + id%10)
			id /= 10
		}
	}
	return b
}

func (s *fakeService) RoundTrip(req *http.Request) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if req.Body != nil {
		body = req.Body
		defer req.Body.Close()
	}
	respBody, err := s.respond(req.Context(), req.URL.Path, body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json;charset=UTF-8"}},
		Body:          io.NopCloser(bytes.NewReader(respBody)),
		ContentLength: -1, // unknown, as in a chunked response
		Request:       req,
	}, nil
}

func (s *fakeService) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	respBody, err := s.respond(req.Context(), req.URL.Path, req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	_, _ = w.Write(respBody) // fails if the client has disconnected
}
