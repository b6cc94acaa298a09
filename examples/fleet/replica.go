package main

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/msgpush"
	"example.com/msgpush/fleet"
	"example.com/msgpush/msgpushtest"
)

// replicaVariable is the environment variable that makes this program a replica. Its value is a
// replicaConfig.
const replicaVariable = "MSGPUSH_FLEET_REPLICA"

// burst is the number of requests that may be sent without spacing.
const burst = 1

type replicaConfig struct {
	RedisURL, BaseURL, IssuerURL string
	Dir, Export, Account         string
	Rate                         int
	Secret                       []byte // encrypts the access key in Redis
}

func newSecret() []byte {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return secret
}

func queueName(export string) string { return "msgpush-export-" + export }

type replica struct {
	replicaConfig
	client *msgpush.Client
	queue  *asynq.Client

	mu     sync.Mutex
	output *json.Encoder
}

// runReplica runs a replica until its input ends.
func runReplica(text string, input io.Reader, output io.Writer) error {
	signal.Ignore(os.Interrupt) // a terminal sends it to replicas, too; closing their input stops them
	r := &replica{output: json.NewEncoder(output)}
	if err := json.Unmarshal([]byte(text), &r.replicaConfig); err != nil {
		return err
	}
	rdb, err := newRedisClient(r.RedisURL)
	if err != nil {
		return err
	}
	defer rdb.Close() //nolint:errcheck // nothing is left to do
	block, err := aes.NewCipher(r.Secret)
	if err != nil {
		return err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	keys, err := fleet.NewKeySource(rdb, fleet.KeyConfig{
		Name:  r.Account,
		Fetch: countFetches(registry, r.fetch),
		Early: time.Minute,
		AEAD:  aead,
	})
	if err != nil {
		return err
	}
	defer keys.Close() //nolint:errcheck // always nil
	limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{
		Name:  r.Account,
		Rate:  r.Rate,
		Per:   time.Second,
		Burst: burst,
	})
	if err != nil {
		return err
	}
	r.client, err = msgpush.NewClient(r.BaseURL, "",
		msgpush.WithAccessKeySource(keys),
		msgpush.WithRejectedKeyCodes(msgpushtest.CodeAccessKey),
		msgpush.WithRateLimiter(countWaits(registry, limiter)))
	if err != nil {
		return err
	}

	r.queue = asynq.NewClientFromRedisClient(rdb)
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Queues: map[string]int{queueName(r.Export): 1}, Concurrency: 4, LogLevel: asynq.ErrorLevel,
		TaskCheckInterval: 200 * time.Millisecond, DelayedTaskCheckInterval: time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	})
	if err := server.Start(asynq.HandlerFunc(r.export)); err != nil {
		return err
	}
	defer server.Shutdown()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	observe(registry, limiter)
	url, err := serve(ctx, registry, keys, limiter)
	if err != nil {
		return err
	}
	if err := r.write(event{Metrics: url + "/metrics"}); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	if err := r.plan(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("planning: %w", err)
	}
	<-ctx.Done()
	return nil
}

// fetch obtains a new access key from the issuer. The zero expiry means that it does not expire.
func (r *replica) fetch(ctx context.Context) (key string, expires time.Time, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.IssuerURL, nil)
	if err != nil {
		return "", time.Time{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", time.Time{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", time.Time{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return "", time.Time{}, fmt.Errorf("key issuer: HTTP %s", resp.Status)
	}
	return string(body), time.Time{}, nil
}

// plan queues one task for each rule. The task ID makes it idempotent: all replicas plan, and a
// rule is queued once for this export.
func (r *replica) plan(ctx context.Context) error {
	list := r.client.ForwardRules()
	list.PageSize = 100
	for rule, err := range list.All(ctx) {
		if err != nil {
			return err
		}
		id := strconv.FormatInt(rule.ID, 10)
		_, err := r.queue.EnqueueContext(ctx, asynq.NewTask("export", []byte(id)),
			asynq.Queue(queueName(r.Export)), asynq.TaskID("rule-"+id),
			asynq.MaxRetry(10), asynq.Timeout(10*time.Minute), asynq.Retention(24*time.Hour))
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			return err
		}
	}
	return r.write(event{Planned: true})
}

// export writes the trigger records of one rule. A retried task replaces the file of the previous
// attempt.
func (r *replica) export(ctx context.Context, task *asynq.Task) (err error) {
	rule, err := strconv.ParseInt(string(task.Payload()), 10, 64)
	if err != nil {
		return fmt.Errorf("task payload: %w", err)
	}
	file, err := os.CreateTemp(r.Dir, fmt.Sprintf(".rule-%d-*", rule))
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // the file has been renamed, unless the task failed
	defer file.Close()
	buffer := bufio.NewWriter(file)
	lines := json.NewEncoder(buffer)
	records := int64(0)
	for record, err := range r.client.ForwardLogs(msgpush.ForwardLogParams{RuleID: &rule}).All(ctx) {
		if err != nil {
			return err
		}
		if err := lines.Encode(record); err != nil {
			return err
		}
		records++
	}
	if err := errors.Join(buffer.Flush(), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(r.Dir, fmt.Sprintf("rule-%d.jsonl", rule))); err != nil {
		return err
	}
	return r.write(event{Rule: rule, Records: records})
}

func (r *replica) write(ev event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.Encode(ev)
}
