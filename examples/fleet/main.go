// Fleet exports the trigger records of every message rule with several replicas that share a queue,
// an access key and a request budget.
//
// The replicas are processes of this program. The queue is asynq, which uses Redis. Planning is
// idempotent: each replica plans the whole export, and the task of a rule is queued once. Tasks are
// idempotent too: a file is written under a temporary name and renamed when it is complete.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"example.com/msgpush/examples/internal/cli"
)

const about = `Fleet exports the trigger records of every message rule with several replicas
that share a queue, an access key and a request budget. It writes one file of
JSON lines for each rule and ends when all files are complete.

With MSGPUSH_REDIS_URL in the environment, such as redis://localhost:6379/0, it
uses that Redis or Valkey, otherwise an embedded one. With the same Redis, -id
and -o, the next run resumes an export that was interrupted.

Each replica prints the URL of its metrics, such as how long the queue for the
request budget is.

With -kill, the other replicas finish the tasks of the killed one about one to
two minutes later: every 60 s, the queue (asynq) looks for tasks whose lease of
30 s expired at least 30 s ago.
`

func main() {
	if text := os.Getenv(replicaVariable); text != "" {
		if err := runReplica(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "fleet: replica:", err)
			os.Exit(1)
		}
		return
	}
	var e export
	flag.IntVar(&e.replicas, "replicas", 3, "number of replicas, at least 1")
	flag.IntVar(&e.rate, "rate", 50, "requests per second of all replicas together, at least 1")
	flag.StringVar(&e.dir, "o", "", "write the files to `DIR` (default a temporary directory, removed at the end)")
	flag.StringVar(&e.id, "id", "", "`NAME` of the export (default a random name)")
	flag.BoolVar(&e.kill, "kill", false, "kill a replica with SIGKILL; needs 2 replicas or more, and MSGPUSH_REDIS_URL")
	cli.Parse("fleet", about)
	switch {
	case e.replicas < 1:
		cli.UsageError("-replicas must be at least 1")
	case e.rate < 1:
		cli.UsageError("-rate must be at least 1")
	case e.dir == "-":
		cli.UsageError("-o must be a directory")
	case e.kill && e.replicas < 2:
		cli.UsageError("-kill needs at least 2 replicas")
	}
	cli.Run(func(ctx context.Context) error {
		var report strings.Builder
		if err := e.run(ctx, &report); err != nil {
			return err
		}
		// Print after the cleanup: a closed pipe ends the program immediately.
		_, err := os.Stdout.WriteString(report.String())
		return err
	})
}
