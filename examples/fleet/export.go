package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
	"example.com/msgpush/msgpushtest"
)

// An export starts the replicas and waits until the queue is empty.
type export struct {
	replicas, rate int
	dir, id        string
	kill           bool

	account   *cli.Account
	temporary bool         // dir is removed at the end
	issued    atomic.Int64 // number of access keys
}

// A worker is the process of a replica.
type worker struct {
	name           string
	cmd            *exec.Cmd
	stdin          io.Closer // closing it stops the replica
	stopping       atomic.Bool
	stopped        chan struct{}
	died           string // how it ended; empty if it was stopped
	planned        atomic.Bool
	files, records atomic.Int64
}

// An event is a line in the output of a replica.
type event struct {
	Metrics string // URL of the metrics
	Planned bool   // all rules are in the queue
	Rule    int64
	Records int64
}

// run writes the report to w.
func (e *export) run(ctx context.Context, w io.Writer) (err error) {
	redisURL := os.Getenv("MSGPUSH_REDIS_URL")
	if e.kill && redisURL == "" {
		return errors.New("-kill needs a real Redis; set MSGPUSH_REDIS_URL")
	}
	e.account, err = cli.OpenAccount(os.Getenv, madeUpRecords())
	if err != nil {
		return err
	}
	defer e.account.Close()
	// Check the settings once, before the replicas use them.
	if _, err := msgpush.NewClient(e.account.BaseURL, e.account.AccessKey); err != nil {
		return err
	}
	resumable := redisURL != "" && e.dir != "" // before both get defaults
	if redisURL == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer embedded.Close()
		redisURL = "redis://" + embedded.Addr()
		log.Print("using an embedded Redis, since MSGPUSH_REDIS_URL is not set")
	}
	rdb, err := newRedisClient(redisURL)
	if err != nil {
		return err
	}
	defer rdb.Close() //nolint:errcheck // nothing is left to do
	if err := ping(ctx, rdb); err != nil {
		return err
	}
	if e.dir == "" {
		if e.dir, err = os.MkdirTemp("", "fleet-"); err != nil {
			return err
		}
		e.temporary = true
		defer os.RemoveAll(e.dir) //nolint:errcheck // a temporary directory
	} else if err := os.MkdirAll(e.dir, 0o750); err != nil {
		return err
	}
	e.id = cmp.Or(e.id, strings.ToLower(rand.Text()[:10]))
	issuer := httptest.NewServer(http.HandlerFunc(e.issueKey))
	defer issuer.Close()
	name := "example-" + rand.Text() // unique: the key of an earlier run is encrypted with another secret
	defer rdb.Del(context.WithoutCancel(ctx), "msgpush:1:key:{"+name+"}", "msgpush:1:rate:{"+name+"}")

	begin := time.Now()
	workers, err := e.start(replicaConfig{
		RedisURL:  redisURL,
		BaseURL:   e.account.BaseURL,
		IssuerURL: issuer.URL,
		Dir:       e.dir,
		Export:    e.id,
		Account:   name,
		Rate:      e.rate,
		Secret:    newSecret(),
	})
	defer stop(workers)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d replicas, %d requests per second, export %s\n", e.replicas, e.rate, e.id)
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	if err := e.wait(ctx, inspector, workers); err != nil {
		if resumable {
			return fmt.Errorf("%w; resume with -id %s -o %s", err, e.id, e.dir)
		}
		return err
	}
	elapsed := time.Since(begin)
	stop(workers)
	// Completed tasks are kept until all replicas have planned, so that none is queued again.
	if _, err := inspector.DeleteAllCompletedTasks(queueName(e.id)); err == nil {
		_ = inspector.DeleteQueue(queueName(e.id), true)
	}
	return e.report(w, workers, elapsed)
}

func newRedisClient(url string) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil { // err may include a password
		return nil, errors.New("MSGPUSH_REDIS_URL is not valid; set it to a URL such as redis://localhost:6379/0")
	}
	opts.ContextTimeoutEnabled = true
	redis.SetLogger(discard{}) // errors are returned
	return redis.NewClient(opts), nil
}

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}

func ping(ctx context.Context, rdb *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("the Redis of MSGPUSH_REDIS_URL does not respond: %w", err)
	}
	return nil
}

// issueKey issues access keys to replicas. The API document does not show how an access key is
// obtained, so a program for the real service needs its own Fetch function.
func (e *export) issueKey(w http.ResponseWriter, _ *http.Request) {
	e.issued.Add(1)
	key := e.account.AccessKey
	if e.account.Fake != nil { // each key invalidates the one before it
		key = "example-" + rand.Text()
		e.account.Fake.SetAccessKey(key)
	}
	_, _ = io.WriteString(w, key)
}

// madeUpRecords returns 60 rules and 1,830 trigger records.
func madeUpRecords() msgpushtest.Records {
	var records msgpushtest.Records
	for rule := int64(1); rule <= 60; rule++ {
		records.ForwardRules = append(records.ForwardRules, msgpush.ForwardRule{
			ID: rule, TokenID: msgpush.AllTokensID, RuleName: fmt.Sprintf("rule %d", rule), CreateTime: "2026-03-02 10:00:00",
		})
		for n := range rule {
			records.ForwardLogs = append(records.ForwardLogs, msgpush.ForwardLog{
				ID: rule*1000 + n, RuleID: rule, RuleName: fmt.Sprintf("rule %d", rule), CreateTime: "2026-11-05 18:00:00",
			})
		}
	}
	return records
}

// start starts the replicas. If it returns an error, some replicas may be running.
func (e *export) start(config replicaConfig) (workers []*worker, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for n := range e.replicas {
		w := &worker{
			name:    fmt.Sprintf("replica %d", n+1),
			cmd:     exec.Command(program), //nolint:noctx // closing stdin stops it
			stopped: make(chan struct{}),
		}
		text, err := json.Marshal(config)
		if err != nil {
			return workers, err
		}
		w.cmd.Env = append(os.Environ(), replicaVariable+"="+string(text))
		w.cmd.Stderr = os.Stderr
		if w.stdin, err = w.cmd.StdinPipe(); err != nil {
			return workers, err
		}
		output, err := w.cmd.StdoutPipe()
		if err != nil {
			return workers, err
		}
		if err := w.cmd.Start(); err != nil {
			return workers, err
		}
		go w.read(output)
		workers = append(workers, w)
	}
	return workers, nil
}

// read handles the lines that a replica writes, until its output ends.
func (w *worker) read(output io.Reader) {
	defer close(w.stopped)
	for in := bufio.NewScanner(output); in.Scan(); {
		var ev event
		if json.Unmarshal(in.Bytes(), &ev) != nil {
			continue
		}
		if ev.Metrics != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", w.name, ev.Metrics)
			continue
		}
		if ev.Planned {
			w.planned.Store(true)
			continue
		}
		w.files.Add(1)
		w.records.Add(ev.Records)
	}
	_ = w.cmd.Wait()
	if !w.stopping.Load() {
		w.died = w.cmd.ProcessState.String()
		fmt.Fprintf(os.Stderr, "%s died: %s\n", w.name, w.died)
	}
}

func (w *worker) running() bool {
	select {
	case <-w.stopped:
		return false
	default:
		return true
	}
}

// stop stops the replicas. They have at most 10 s to finish their tasks.
func stop(workers []*worker) {
	var group sync.WaitGroup
	for _, w := range workers {
		w.stopping.Store(true)
		_ = w.stdin.Close()
		group.Go(func() {
			select {
			case <-w.stopped:
			case <-time.After(10 * time.Second):
				_ = w.cmd.Process.Kill()
				<-w.stopped
			}
		})
	}
	group.Wait()
}

// wait shows the progress until no task is left.
func (e *export) wait(ctx context.Context, inspector *asynq.Inspector, workers []*worker) error {
	shown := ""
	for {
		select {
		case <-ctx.Done():
			return cli.ErrInterrupted
		case <-time.After(250 * time.Millisecond):
		}
		running := slices.DeleteFunc(slices.Clone(workers), func(w *worker) bool { return !w.running() })
		if len(running) == 0 {
			return errors.New("all replicas have ended")
		}
		if !slices.ContainsFunc(running, func(w *worker) bool { return w.planned.Load() }) {
			continue
		}
		info, err := inspector.GetQueueInfo(queueName(e.id))
		if errors.Is(err, asynq.ErrQueueNotFound) { // no rules
			return nil
		}
		if err != nil {
			return err
		}
		left := info.Pending + info.Active + info.Scheduled + info.Retry
		if text := fmt.Sprintf("%d of %d rules exported", info.Completed, info.Completed+left); text != shown {
			fmt.Fprintln(os.Stderr, text)
			shown = text
		}
		if info.Archived > 0 {
			return e.failure(inspector)
		}
		if left == 0 && !slices.ContainsFunc(running, func(w *worker) bool { return !w.planned.Load() }) {
			return nil
		}
		if e.kill && workers[0].files.Load() > 0 && info.Pending > 0 { // replica 1 has completed a task, and more are queued
			e.kill = false
			_ = workers[0].cmd.Process.Kill()
			fmt.Fprintf(os.Stderr, "%s was killed; the others finish its tasks in one to two minutes\n", workers[0].name)
		}
	}
}

// failure returns the error of a task that failed in all of its attempts.
func (e *export) failure(inspector *asynq.Inspector) error {
	tasks, err := inspector.ListArchivedTasks(queueName(e.id))
	if err != nil || len(tasks) == 0 {
		return errors.New("a task failed in all of its attempts")
	}
	return fmt.Errorf("rule %s: %s", tasks[0].Payload, tasks[0].LastErr)
}

// report removes incomplete files and writes the result to w.
func (e *export) report(w io.Writer, workers []*worker, elapsed time.Duration) error {
	left, _ := filepath.Glob(filepath.Join(e.dir, ".rule-*")) // files of a killed replica
	for _, file := range left {
		_ = os.Remove(file)
	}
	files, err := filepath.Glob(filepath.Join(e.dir, "rule-*.jsonl"))
	if err != nil {
		return err
	}
	records := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		records += strings.Count(string(data), "\n")
	}
	where := "the files are in " + e.dir
	if e.temporary {
		where = "the files were temporary (-o DIR keeps them)"
	}
	fmt.Fprintf(w, "%d records of %d rules in %.1f s; %s\n", records, len(files), elapsed.Seconds(), where)
	for _, r := range workers {
		fmt.Fprintf(w, "%s: %d files, %d records", r.name, r.files.Load(), r.records.Load())
		if r.died != "" {
			fmt.Fprintf(w, "; died: %s", r.died)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "access keys fetched: %d\n", e.issued.Load())
	if e.account.Fake != nil {
		requests := e.account.Fake.Requests()
		first, worst := 0, 0
		for last := range requests {
			for requests[last].Time.Sub(requests[first].Time) >= time.Second {
				first++
			}
			worst = max(worst, last-first+1)
		}
		fmt.Fprintf(w, "requests: %d, at most %d in one second\n", len(requests), worst)
		// The requests of one second have slots of 1.25 s.
		fmt.Fprintf(w, "permitted: %d slots in one second (rate %d + burst %d), so up to %d requests, "+
			"since each starts up to 250 ms after its slot, plus the network delay\n",
			e.rate+burst, e.rate, burst, e.rate*5/4+burst)
	}
	return nil
}
