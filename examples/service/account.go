package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// An account holds the address, the key and the transport of a message push service.
type account struct {
	baseURL   string
	fetchKey  func(context.Context) (string, error) // the current access key
	transport http.RoundTripper
}

// openAccount returns the account that the environment sets, or one of a fake server.
func openAccount(getenv func(string) string, logger *slog.Logger) (*account, error) {
	baseURL, key, file := getenv("MSGPUSH_BASE_URL"), getenv("MSGPUSH_ACCESS_KEY"), getenv("MSGPUSH_ACCESS_KEY_FILE")
	acc := &account{baseURL: baseURL, transport: msgpush.NewTransport()}
	switch {
	case baseURL == "" && key == "" && file == "":
		return openFake(acc, logger), nil
	case baseURL == "":
		return nil, errors.New("MSGPUSH_BASE_URL is missing")
	case (key == "") == (file == ""):
		return nil, errors.New("exactly one of MSGPUSH_ACCESS_KEY and MSGPUSH_ACCESS_KEY_FILE must be set")
	case key != "":
		acc.fetchKey = func(context.Context) (string, error) { return key, nil }
	default:
		acc.fetchKey = func(context.Context) (string, error) {
			content, err := os.ReadFile(file)
			return strings.TrimSpace(string(content)), err
		}
	}
	return acc, nil
}

// openFake starts a fake server, which ends with the program. A program for a real service needs
// neither openFake nor addFailures.
func openFake(acc *account, logger *slog.Logger) *account {
	fake := msgpushtest.NewServer()
	fake.SetRecords(msgpushtest.SampleRecords())
	fake.SetKeyLifetime(20) // requests
	go addFailures(fake)
	logger.Info("using a fake server, since MSGPUSH_BASE_URL is not set")
	acc.baseURL = fake.URL
	acc.fetchKey = func(context.Context) (string, error) { return fake.AccessKey(), nil }
	return acc
}

// addFailures inserts a record with an error into the list of a fake server every 5 s.
func addFailures(fake *msgpushtest.Server) {
	for now := range time.Tick(5 * time.Second) {
		fake.Update(func(r *msgpushtest.Records) {
			failure := r.ForwardLogs[0]
			failure.ID++
			failure.CreateTime = msgpush.DateTime(now.Format(time.DateTime))
			failure.ErrorMessage = "target 1: connection refused"
			r.ForwardLogs = append([]msgpush.ForwardLog{failure}, r.ForwardLogs...)
		})
	}
}
