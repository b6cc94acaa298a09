package bench

import (
	"context"
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
	name string
	new  func(baseURL string, transport http.RoundTripper) (api, error)
}

const baseline = "net-http" // with encoding/json

var attempts atomic.Int64

// clients returns all clients, the baseline first.
func clients() []client {
	count := func(context.Context, msgpush.Attempt) { attempts.Add(1) }
	return []client{
		{baseline, envelopeClient(newBaseline)},
		{"hcloud-go", envelopeClient(newHcloud)},
		{"go-github", envelopeClient(newGithub)},
		{"resty", envelopeClient(newResty)},
		{"msgpush", msgpushClient()},
		{"msgpush+observer", msgpushClient(msgpush.WithObserver(count))},
		{"msgpush+sonic", msgpushClient(msgpush.WithUnmarshal(sonic.ConfigStd.Unmarshal))},
		{"msgpush+goccy", msgpushClient(msgpush.WithUnmarshal(goccy.Unmarshal))},
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

func checkCode(code int, msg string) error {
	if code != 200 {
		return fmt.Errorf("code %d: %s", code, msg)
	}
	return nil
}
