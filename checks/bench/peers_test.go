package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-resty/resty/v2"
	"github.com/google/go-github/v89/github"
	"github.com/google/go-querystring/query"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// newBaseline is a minimal client that uses only the standard library.
func newBaseline(baseURL string, transport http.RoundTripper) (doFunc, error) {
	client := &http.Client{Transport: transport}
	return func(ctx context.Context, method, path string, q, body, v any) error {
		reader, err := encode(body)
		if err != nil {
			return err
		}
		address := baseURL + path
		if q, ok := q.(mailQuery); ok {
			address += "?" + url.Values{"mailId": {q.MailID}}.Encode()
		}
		req, err := http.NewRequestWithContext(ctx, method, address, reader)
		if err != nil {
			return err
		}
		req.Header.Set("access-key", accessKey)
		req.Header.Set("Accept", "application/json")
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		respBody, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode/100 != 2 {
			return errors.New(resp.Status)
		}
		return json.Unmarshal(respBody, v)
	}, nil
}

// encode returns the body of a POST, or nil.
func encode(body any) (io.Reader, error) {
	if body == nil {
		return nil, nil
	}
	b, err := json.Marshal(body)
	return bytes.NewReader(b), err
}

// pathWithQuery adds a query to a path, as the methods of go-github do.
func pathWithQuery(path string, q any) (string, error) {
	if q == nil {
		return path, nil
	}
	u, err := url.Parse(path)
	if err != nil {
		return "", err
	}
	values, err := query.Values(q)
	if err != nil {
		return "", err
	}
	u.RawQuery = values.Encode()
	return u.String(), nil
}

func newHcloud(baseURL string, transport http.RoundTripper) (doFunc, error) {
	client := hcloud.NewClient(hcloud.WithEndpoint(baseURL), hcloud.WithHTTPClient(&http.Client{Transport: transport}))
	return func(ctx context.Context, method, path string, q, body, v any) error {
		reader, err := encode(body)
		if err != nil {
			return err
		}
		if q, ok := q.(mailQuery); ok {
			path += "?" + url.Values{"mailId": {q.MailID}}.Encode()
		}
		req, err := client.NewRequest(ctx, method, path, reader)
		if err != nil {
			return err
		}
		req.Header.Set("access-key", accessKey)
		_, err = client.Do(req, v)
		return err
	}, nil
}

func newGithub(baseURL string, transport http.RoundTripper) (doFunc, error) {
	baseURL += "/"
	client, err := github.NewClient(
		github.WithHTTPClient(&http.Client{Transport: transport}),
		github.WithURLs(&baseURL, nil))
	return func(ctx context.Context, method, path string, q, body, v any) error {
		path, err := pathWithQuery(path[1:], q)
		if err != nil {
			return err
		}
		req, err := client.NewRequest(ctx, method, path, body)
		if err != nil {
			return err
		}
		req.Header.Set("access-key", accessKey)
		_, err = client.Do(req, v)
		return err
	}, err
}

func newResty(baseURL string, transport http.RoundTripper) (doFunc, error) {
	client := resty.NewWithClient(&http.Client{Transport: transport}).
		SetBaseURL(baseURL).
		SetHeader("access-key", accessKey).
		SetHeader("Accept", "application/json")
	return func(ctx context.Context, method, path string, q, body, v any) error {
		r := client.R().SetContext(ctx).SetResult(v)
		if q, ok := q.(mailQuery); ok {
			r.SetQueryParam("mailId", q.MailID)
		}
		if body != nil {
			r.SetBody(body)
		}
		resp, err := r.Execute(method, path)
		if err != nil {
			return err
		}
		if !resp.IsSuccess() {
			return fmt.Errorf("%s", resp.Status())
		}
		return nil
	}, nil
}
