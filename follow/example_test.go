package follow_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/follow"
	"example.com/msgpush/msgpushtest"
)

// An alert service skips the history of the account.
func Example() {
	service := msgpushtest.NewServer()
	defer service.Close()
	service.SetRecords(msgpushtest.SampleRecords()) // 64 trigger records
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	list := service.Client().ForwardLogPager(msgpush.ForwardLogParams{})
	f, err := follow.New(list, follow.Options{PollInterval: time.Millisecond}) // for the example: the default is 10 s
	if err != nil {
		log.Fatal(err)
	}
	history := 0
	store := func(_ context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
		for _, record := range batch.New {
			if record.ErrorMessage != "" {
				fmt.Printf("alert: %s: %s\n", record.RuleName, record.ErrorMessage)
				cancel() // so that the example ends
			}
		}
		history += len(batch.History)
		if history == 64 && len(batch.History) > 0 {
			fmt.Println(history, "records until", batch.Since)
			service.Update(insertFailure)
		}
		return nil // stored
	}
	if err := f.Run(ctx, store); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 64 records until 2026-11-05 18:00:00
	// alert: night shift: target 1: timeout
}

func insertFailure(r *msgpushtest.Records) {
	failure := msgpush.ForwardLog{
		ID:           9065,
		RuleName:     "night shift",
		ErrorMessage: "target 1: timeout",
		CreateTime:   "2026-11-06 08:00:00",
	}
	r.ForwardLogs = append([]msgpush.ForwardLog{failure}, r.ForwardLogs...)
}

// A health check fails if the follower hangs, or has failed for ten minutes. Only a follower that
// hangs is a reason to restart the program.
func ExampleStatus_Check() {
	client, err := msgpush.NewClient("https://push.example.com", "key")
	if err != nil {
		log.Fatal(err)
	}
	f, err := follow.New(client.ForwardRulePager(), follow.Options{})
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		err := f.Status().Check(10 * time.Minute)
		if errors.Is(err, follow.ErrHangs) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}
