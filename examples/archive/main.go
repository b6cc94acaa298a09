// Archive stores the trigger records of an account in a database, each of them once. It shows how
// the history of an account causes no alerts.
//
// The first build compiles SQLite, which takes about half a minute of CPU time.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/msgpushtest"
)

const about = `Archive stores trigger records in a database: first those in the list, then each
new one until it is interrupted or, with -once, none. Several archives may use the
same database. It creates four tables:

  forward_log   the records, with a column for each of their members
  forward_rule  the message rules
  outbox        the ids of new records, for programs that send alerts
  follow_since  when the history ends, for each filter (-rule and -match-result)

A record is new if it was created after the newest record in the list at the very
first start with its filter. So the outbox has no record of the history of the
account. A program that sends alerts reads the outbox, and deletes the rows that it
has sent. Of several filters, the one that stores a record first decides.

If the program is interrupted or killed, no record is lost or repeated: a batch of
records is one transaction. The next run takes the ids of the stored records from
the database, and stores those that are missing: at the latest when the complete
list is read, which takes place every -read-interval. A record that the service
deletes stays in the archive, unless it was deleted before it was read.

If the database cannot be opened or fails permanently, if the first request fails,
or if the access key is rejected, the program ends; with -once, at every failure.
It reports other failures on standard error, and retries less and less often, but at
least once a minute unless -interval or Retry-After is longer.

PostgreSQL takes a password from PGPASSWORD or ~/.pgpass, too. A batch of records is
one round trip to PostgreSQL.

Queries, for both databases:

Failures by rule and day
` + failuresQuery + `
The newest errors
` + errorsQuery + `
The new errors in the outbox
` + outboxQuery + `
Rules that never match, if -rule and -match-result were not used. 0 is the code of
the fake server for "no match": replace it by the codes of your service.
` + unmatchedQuery

const (
	failuresQuery = `  SELECT substr(create_time, 1, 10) AS day, rule_id, rule_name, count(*) AS failures
  FROM forward_log WHERE error_message <> ''
  GROUP BY 1, 2, 3 ORDER BY 1 DESC, 4 DESC, 2;
`
	errorsQuery = `  SELECT create_time, id, rule_name, error_message
  FROM forward_log WHERE error_message <> ''
  ORDER BY create_time DESC, id DESC LIMIT 20;
`
	outboxQuery = `  SELECT id, rule_name, error_message FROM outbox JOIN forward_log USING (id)
  WHERE error_message <> '' ORDER BY id;
`
	unmatchedQuery = `  SELECT id, rule_name, condition_expr FROM forward_rule WHERE NOT EXISTS (
    SELECT 1 FROM forward_log
    WHERE rule_id = forward_rule.id AND match_result NOT IN (0)
  ) ORDER BY id;
`
)

// settings are the values of the flags.
type settings struct {
	params       msgpush.ForwardLogParams
	db           *database
	interval     time.Duration
	readInterval time.Duration
	pageSize     int
	once         bool
}

// minInterval is shorter in the tests.
var minInterval = time.Second

func main() {
	var s settings
	cli.ForwardLogFlags(&s.params)
	db := flag.String("db", "archive.db", "`DATABASE`: the name of an SQLite file, or postgres://USER@HOST/NAME")
	flag.BoolVar(&s.once, "once", false, "read the complete list once, and end")
	flag.DurationVar(&s.interval, "interval", 10*time.Second, "time between two polls, at least 1s")
	flag.DurationVar(&s.readInterval, "read-interval", time.Hour,
		"time between two reads of the complete list and of the rules, at least 1s")
	flag.IntVar(&s.pageSize, "page-size", 100, "records per page, at least 1")
	cli.Parse("archive", about)
	switch {
	case s.interval < minInterval:
		cli.UsageError("-interval must be at least 1s")
	case s.readInterval < minInterval:
		cli.UsageError("-read-interval must be at least 1s")
	case s.pageSize < 1:
		cli.UsageError("-page-size must be at least 1")
	}
	var err error
	if s.db, err = newDatabase(*db); err != nil {
		cli.UsageError("-db: %v", err)
	}
	cli.Run(s.archive)
}

func (s *settings) archive(ctx context.Context) error {
	account, err := cli.OpenAccount(os.Getenv, msgpushtest.SampleRecords())
	if err != nil {
		return err
	}
	defer account.Close()
	client, err := msgpush.NewClient(account.BaseURL, account.AccessKey,
		msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey)) // of the fake server: add the codes of your service
	if err != nil {
		return err
	}
	defer func() { _ = s.db.Close() }()
	if err := s.db.prepare(ctx); err != nil {
		return err
	}
	a := newArchiver(s, client)
	defer a.summarize()
	return a.run(ctx)
}
