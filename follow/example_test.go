package follow_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"example.com/msgpush"
	"example.com/msgpush/follow"
)

// A file holds the position. It is replaced after the alerts of a batch were printed: if the program is
// killed between the two, they are printed again. A program that must not alert twice stores its alerts and
// the position in one transaction instead; see docs/following.md.
func Example() {
	client, err := msgpush.NewClient("https://push.example.com", os.Getenv("MSGPUSH_ACCESS_KEY"))
	if err != nil {
		panic(err)
	}
	f, err := follow.New(client.ForwardLogPager(msgpush.ForwardLogParams{}), follow.Options{})
	if err != nil {
		panic(err)
	}
	load := func(context.Context) (string, error) {
		position, err := os.ReadFile("position")
		if errors.Is(err, fs.ErrNotExist) { // the very first start
			return "", nil
		}
		return string(position), err
	}
	store := func(_ context.Context, batch follow.Batch[msgpush.ForwardLog]) error {
		for _, record := range batch.Records {
			fmt.Println(record.ID, record.ErrorMessage)
		}
		for _, record := range batch.Omitted {
			fmt.Println(record.ID, string(record.JSON))
		}
		if err := os.WriteFile("position.new", []byte(batch.Position), 0o600); err != nil {
			return err
		}
		return os.Rename("position.new", "position") // in one step
	}
	if err := f.Run(context.Background(), load, store); err != nil {
		panic(err)
	}
}
