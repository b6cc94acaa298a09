package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A target sends an alert. A nil error means that the alert has arrived.
type target func(context.Context, alert) error

// logTarget logs alerts.
func logTarget(logger *slog.Logger) target {
	return func(ctx context.Context, a alert) error {
		logger.WarnContext(ctx, "alert", "record", json.RawMessage(a.body))
		return nil
	}
}

// webhookTimeout bounds one request to the webhook.
const webhookTimeout = 10 * time.Second

// webhookTarget posts alerts to a URL. Each status but 2xx is a failure.
func webhookTarget(webhook string) target {
	client := &http.Client{
		Timeout: webhookTimeout,
		// Following a redirect could turn the POST into a GET, which delivers nothing.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, a alert) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook, strings.NewReader(a.body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", strconv.FormatInt(a.recordID, 10))
		resp, err := client.Do(req)
		if urlErr, ok := errors.AsType[*url.Error](err); ok {
			return urlErr.Err // without the URL, which may hold a secret
		}
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("HTTP %s", resp.Status)
		}
		return nil
	}
}
