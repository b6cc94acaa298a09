package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/bytedance/sonic"
	goccy "github.com/goccy/go-json"

	"example.com/msgpush"
)

const (
	accessKey      = "0123456789abcdef0123456789abcdef"
	mailDetailPath = "/api/open/mail/detail"
	forwardLogPath = "/api/open/forwardLog/list"
)

// A page is a page of trigger records without the methods of [msgpush.Page], so
// that no client pays for UnmarshalJSON.
type page msgpush.Page[msgpush.ForwardLog]

type mailQuery struct {
	MailID string `url:"mailId"`
}

// An api makes the calls to measure.
type api struct {
	mail func(ctx context.Context, id string) (*msgpush.MailChannel, error)
	page func(ctx context.Context, r msgpush.ForwardLogRequest) (*page, error)
}

// A client is one of the compared packages. new returns an api that uses the package
// as its users would.
type client struct {
	name      string
	isMsgpush bool
	new       func(baseURL string, transport http.RoundTripper) (api, error)
}

const (
	nameBaseline = "net/http + encoding/json"
	nameTwice    = "envelope first, data second"
	nameMsgpush  = "msgpush"
	nameObserver = "msgpush + an observer that counts"
	nameSonic    = "msgpush + sonic"
	nameGoccy    = "msgpush + goccy/go-json"
)

var attempts atomic.Int64

// clients returns all clients, the baseline first.
func clients() []client {
	return []client{
		{name: nameBaseline, new: envelopeClient(newBaseline)},
		{name: nameTwice, new: newTwice},
		{name: "godo", new: envelopeClient(newGodo)},
		{name: "hcloud-go", new: envelopeClient(newHcloud)},
		{name: "gitlab client-go", new: envelopeClient(newGitlab)},
		{name: "go-github", new: envelopeClient(newGithub)},
		{name: "resty", new: envelopeClient(newResty)},
		{name: nameMsgpush, isMsgpush: true, new: msgpushClient()},
		{
			name:      nameObserver,
			isMsgpush: true,
			new:       msgpushClient(msgpush.WithObserver(func(context.Context, msgpush.Attempt) { attempts.Add(1) })),
		},
		{name: nameSonic, isMsgpush: true, new: msgpushClient(msgpush.WithUnmarshal(sonic.ConfigStd.Unmarshal))},
		{name: nameGoccy, isMsgpush: true, new: msgpushClient(msgpush.WithUnmarshal(goccy.Unmarshal))},
	}
}

func newMsgpushClient(baseURL string, transport http.RoundTripper, opts ...msgpush.Option) (*msgpush.Client, error) {
	opts = append(opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	return msgpush.NewClient(baseURL, accessKey, opts...)
}

func msgpushClient(opts ...msgpush.Option) func(string, http.RoundTripper) (api, error) {
	return func(baseURL string, transport http.RoundTripper) (api, error) {
		client, err := newMsgpushClient(baseURL, transport, opts...)
		if err != nil {
			return api{}, err
		}
		return api{
			mail: client.MailDetail,
			page: func(ctx context.Context, r msgpush.ForwardLogRequest) (*page, error) {
				p, err := client.ForwardLogList(ctx, r)
				return (*page)(p), err
			},
		}, nil
	}
}

// A doFunc sends a request and decodes the response into v, as the methods of a
// client do. A GET has a query, and a POST has a body.
type doFunc func(ctx context.Context, method, path string, query, body, v any) error

// envelopeClient returns a function that makes an api, which decodes a response
// into the envelope and then checks the code.
func envelopeClient(
	newDo func(string, http.RoundTripper) (doFunc, error),
) func(string, http.RoundTripper) (api, error) {
	return func(baseURL string, transport http.RoundTripper) (api, error) {
		do, err := newDo(baseURL, transport)
		return api{
			mail: func(ctx context.Context, id string) (*msgpush.MailChannel, error) {
				var env msgpush.Envelope[msgpush.MailChannel]
				if err := do(ctx, http.MethodGet, mailDetailPath, mailQuery{id}, nil, &env); err != nil {
					return nil, err
				}
				return &env.Data, checkCode(env.Code, env.Msg)
			},
			page: func(ctx context.Context, r msgpush.ForwardLogRequest) (*page, error) {
				var env msgpush.Envelope[page]
				if err := do(ctx, http.MethodPost, forwardLogPath, nil, r, &env); err != nil {
					return nil, err
				}
				return &env.Data, checkCode(env.Code, env.Msg)
			},
		}, err
	}
}

// newTwice is like the baseline, but decodes the envelope first, checks its code,
// and then decodes its data.
func newTwice(baseURL string, transport http.RoundTripper) (api, error) {
	do, err := newBaseline(baseURL, transport)
	return api{
		mail: func(ctx context.Context, id string) (*msgpush.MailChannel, error) {
			return decodeTwice[msgpush.MailChannel](ctx, do, http.MethodGet, mailDetailPath, mailQuery{id}, nil)
		},
		page: func(ctx context.Context, r msgpush.ForwardLogRequest) (*page, error) {
			return decodeTwice[page](ctx, do, http.MethodPost, forwardLogPath, nil, r)
		},
	}, err
}

func decodeTwice[T any](ctx context.Context, do doFunc, method, path string, query, body any) (*T, error) {
	var env msgpush.Envelope[json.RawMessage]
	if err := do(ctx, method, path, query, body, &env); err != nil {
		return nil, err
	}
	if err := checkCode(env.Code, env.Msg); err != nil {
		return nil, err
	}
	var data T
	return &data, json.Unmarshal(env.Data, &data)
}

func checkCode(code int, msg string) error {
	if code != 200 {
		return fmt.Errorf("code %d: %s", code, msg)
	}
	return nil
}
