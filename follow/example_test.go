package follow_test

import (
	"context"
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

	list := service.Client().ForwardLogs(msgpush.ForwardLogParams{})
	f := follow.New(list, follow.Options{PollInterval: time.Millisecond}) // for the example: the default is 10 s
	history := 0
	for batch, err := range f.Batches(ctx) {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			log.Print(err) // the follower goes on
			continue
		}
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

// A health check restarts a program whose loop is stuck, but not one that waits: for the next poll,
// or for a service that is down.
func ExampleFollower_Status() {
	client, err := msgpush.NewClient("https://push.example.com", "key")
	if err != nil {
		log.Fatal(err)
	}
	f := follow.New(client.ForwardRules(), follow.Options{})
	const limit = 10 * time.Minute // longer than a call with all retries, and a transaction

	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { // restart if it fails
		if s := f.Status(); time.Since(s.NextRequest) > limit && time.Since(s.LastResponse) > limit {
			http.Error(w, fmt.Sprint("no request since ", s.NextRequest), http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("GET /outage", func(w http.ResponseWriter, _ *http.Request) { // alert if it fails
		if s := f.Status(); s.Err != nil && time.Since(s.FailingSince) > limit {
			http.Error(w, s.Err.Error(), http.StatusServiceUnavailable)
		}
	})
}
