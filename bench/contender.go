package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/bytedance/sonic"
	goccy "github.com/goccy/go-json"

	"example.com/msgpush"
)

const (
	accessKey      = "0123456789abcdef0123456789abcdef"
	mailDetailPath = "/api/open/mail/detail"
	forwardLogPath = "/api/open/forwardLog/list"
)

// A page is a page of rule trigger records without the methods of
// [msgpush.Page], so that every contender decodes the same fields and no more.
type page msgpush.Page[msgpush.ForwardLog]

// A mailQuery is the query of a mail channel detail.
type mailQuery struct {
	MailID string `url:"mailId"`
}

// A caller makes the calls that are measured.
type caller struct {
	mail func(ctx context.Context, id string) (*msgpush.MailChannel, error)
	page func(ctx context.Context, r msgpush.ForwardLogRequest) (*page, error)
}

// A contender is a client for the service, made the way its own users make one.
type contender struct {
	name string
	ours bool
	new  func(baseURL string, transport http.RoundTripper) (caller, error)
}

const (
	nameFloor = "net/http + encoding/json"
	nameTwice = "envelope first, data second"
	nameOurs  = "msgpush"
	nameSonic = "msgpush + sonic"
	nameGoccy = "msgpush + goccy/go-json"
)

// contenders returns all contenders, the floor first.
func contenders() []contender {
	return []contender{
		{name: nameFloor, new: machineryOf(newFloor)},
		{name: nameTwice, new: newTwice},
		{name: "godo", new: machineryOf(newGodo)},
		{name: "hcloud-go", new: machineryOf(newHcloud)},
		{name: "gitlab client-go", new: machineryOf(newGitlab)},
		{name: "go-github", new: machineryOf(newGithub)},
		{name: "resty", new: machineryOf(newResty)},
		{name: nameOurs, ours: true, new: ours()},
		{name: nameSonic, ours: true, new: ours(msgpush.WithUnmarshal(sonic.ConfigStd.Unmarshal))},
		{name: nameGoccy, ours: true, new: ours(msgpush.WithUnmarshal(goccy.Unmarshal))},
	}
}

func newClient(baseURL string, transport http.RoundTripper, opts ...msgpush.Option) (*msgpush.Client, error) {
	opts = append(opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	return msgpush.NewClient(baseURL, accessKey, opts...)
}

func ours(opts ...msgpush.Option) func(string, http.RoundTripper) (caller, error) {
	return func(baseURL string, transport http.RoundTripper) (caller, error) {
		client, err := newClient(baseURL, transport, opts...)
		if err != nil {
			return caller{}, err
		}
		return caller{
			mail: client.MailDetail,
			page: func(ctx context.Context, r msgpush.ForwardLogRequest) (*page, error) {
				p, err := client.ForwardLogList(ctx, r)
				return (*page)(p), err
			},
		}, nil
	}
}

// machinery is how a client sends a request and decodes its answer into v, which
// is what all of its methods are made of. A GET has a query, a POST a body.
type machinery func(ctx context.Context, method, path string, query, body, v any) error

// machineryOf makes a contender of a client's machinery. The answer is decoded
// straight into the envelope, whose code is then checked.
func machineryOf(newMachinery func(string, http.RoundTripper) (machinery, error)) func(string, http.RoundTripper) (caller, error) {
	return func(baseURL string, transport http.RoundTripper) (caller, error) {
		do, err := newMachinery(baseURL, transport)
		return caller{
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

// newTwice is the floor, but for decoding: the envelope first and, when its code
// is known, its data.
func newTwice(baseURL string, transport http.RoundTripper) (caller, error) {
	do, err := newFloor(baseURL, transport)
	return caller{
		mail: func(ctx context.Context, id string) (*msgpush.MailChannel, error) {
			return decodeTwice[msgpush.MailChannel](ctx, do, http.MethodGet, mailDetailPath, mailQuery{id}, nil)
		},
		page: func(ctx context.Context, r msgpush.ForwardLogRequest) (*page, error) {
			return decodeTwice[page](ctx, do, http.MethodPost, forwardLogPath, nil, r)
		},
	}, err
}

func decodeTwice[T any](ctx context.Context, do machinery, method, path string, query, body any) (*T, error) {
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
