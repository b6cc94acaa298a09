package follow_test

import (
	"context"
	"os"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// A file holds the position. A program that must not alert twice after a crash stores its alerts and the
// position in one transaction instead; see docs/following.md.
func Example() {
	client, err := msgpush.NewClient("https://push.example.com", os.Getenv("MSGPUSH_ACCESS_KEY"))
	if err != nil {
		panic(err)
	}
	position, _ := os.ReadFile("position") // there is none at the very first start
	f, err := follow.New(client.ForwardLogPager(msgpush.ForwardLogParams{}), follow.Options{Position: string(position)})
	if err != nil {
		panic(err)
	}
	err = f.Run(context.Background(), func(_ context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
		for _, record := range batch.Records {
			println(record.ID, record.ErrorMessage)
		}
		return os.WriteFile("position", []byte(batch.Position), 0o600)
	})
	if err != nil {
		panic(err)
	}
}
