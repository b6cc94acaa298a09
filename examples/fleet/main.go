// Fleet exports the trigger records of every message rule with three replicas
// that share a queue, an access key and a request budget.
//
// The replicas are processes of this program. The queue is asynq, which keeps it
// in Redis. Planning is idempotent: each replica plans the whole export, and the
// task of a rule is queued once. Tasks are idempotent too: a file is written under
// a temporary name and renamed when it is complete.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: fleet [flags]

Fleet exports the trigger records of every message rule with several replicas
that share a queue, an access key and a request budget. It writes one file of
JSON lines for each rule and ends when all files are complete.

  -replicas N  number of replicas, at least 1 (default 3)
  -rate N      requests per second of all replicas together, at least 1 (default 50)
  -o DIR       write the files to DIR (default: a temporary directory, removed at the end)
  -id NAME     name of the export (default: a random name); the same NAME and DIR
               resume an export that was interrupted
  -kill        kill one replica with SIGKILL (needs MSGPUSH_REDIS_URL). The other
               replicas finish its tasks 60 to 125 s later: asynq retries a task
               whose lease of 30 s has been expired for 30 s, and checks that every
               60 s.

With MSGPUSH_REDIS_URL in the environment, such as redis://localhost:6379/0, it
uses that Redis or Valkey, otherwise an embedded one. With MSGPUSH_BASE_URL and
MSGPUSH_ACCESS_KEY it uses the service there, otherwise a fake server with made-up
records.

The exit status is 0 if all records were exported, 1 on a failure or when
interrupted, and 2 if the flags are invalid.
`

func main() {
	if text := os.Getenv(replicaVariable); text != "" {
		if err := runReplica(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "fleet: replica:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}

// run is the program. It returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	e, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	e.stdout, e.stderr = stdout, stderr
	if err := e.run(ctx, getenv); err != nil {
		fmt.Fprintln(stderr, "fleet:", err)
		return 1
	}
	return 0
}

// parse reads the flags. It has printed the error that it returns.
func parse(args []string, stderr io.Writer) (*export, error) {
	e := &export{}
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	flags.IntVar(&e.replicas, "replicas", 3, "")
	flags.IntVar(&e.rate, "rate", 50, "")
	flags.StringVar(&e.dir, "o", "", "")
	flags.StringVar(&e.id, "id", "", "")
	flags.BoolVar(&e.kill, "kill", false, "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case e.replicas < 1:
		err = errors.New("-replicas must be at least 1")
	case e.rate < 1:
		err = errors.New("-rate must be at least 1")
	case e.kill && e.replicas < 2:
		err = errors.New("-kill needs at least 2 replicas")
	}
	if err != nil {
		fmt.Fprintf(stderr, "fleet: %v (-h shows the usage)\n", err)
	}
	return e, err
}
