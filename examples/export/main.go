// Export writes the trigger records of an account as CSV or as lines of JSON.
package main

import (
	"context"
	"flag"
	"os"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/msgpushtest"
)

const about = `Export writes trigger records as CSV with a header row, or as lines of JSON. The
order of the records is not specified.

With -o FILE, partial output is kept in FILE.part, which is renamed to FILE when
it is complete. If the program fails or is interrupted, FILE is unchanged. On
Windows, renaming fails while another program has FILE open.

With -resume, the next run keeps the records in FILE.part, including those that
the service has deleted since, reads the list from the start, and adds the
missing records.
`

// settings are the values of the flags.
type settings struct {
	params             msgpush.ForwardLogParams
	format             format
	file               string // "-" is standard output
	resume             bool
	pageSize, prefetch int
}

func main() {
	var s settings
	cli.ForwardLogFlags(&s.params)
	format := flag.String("format", "csv", "`FORMAT`: csv or jsonl")
	flag.StringVar(&s.file, "o", "-", "write to `FILE`, or to standard output if it is -")
	flag.BoolVar(&s.resume, "resume", false, "continue with FILE.part if it exists; needs -o FILE")
	flag.IntVar(&s.pageSize, "page-size", 100, "records per page, at least 1")
	flag.IntVar(&s.prefetch, "prefetch", 2, "pages to prefetch, at least 0")
	cli.Parse("export", about)
	s.format = formats[*format]
	switch {
	case s.format == nil:
		cli.UsageError("-format must be csv or jsonl")
	case s.file == "":
		cli.UsageError("-o must not be empty")
	case s.resume && s.file == "-":
		cli.UsageError("-resume needs -o FILE")
	case s.pageSize < 1:
		cli.UsageError("-page-size must be at least 1")
	case s.prefetch < 0:
		cli.UsageError("-prefetch must be at least 0")
	}
	cli.Run(s.export)
}

func (s *settings) export(ctx context.Context) error {
	account, err := cli.OpenAccount(os.Getenv, msgpushtest.SampleRecords())
	if err != nil {
		return err
	}
	defer account.Close()
	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey)
	if err != nil {
		return err
	}
	if s.file == "-" {
		return s.toStdout(ctx, client)
	}
	return s.toFile(ctx, client)
}
