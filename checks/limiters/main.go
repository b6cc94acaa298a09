// Limiters compares the limiter of package fleet with redis_rate: processes share one budget on one
// Redis, and each of their callers takes one slot after another.
//
//	go -C checks run ./limiters
//
// It starts redis-server, and prints a table in Markdown.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	if isProcess() {
		exitOn(runProcess(os.Stdin, os.Stdout))
		return
	}
	c := config{Rate: 2000, Burst: 100}
	counts := flag.String("processes", "50,200", "the numbers of processes")
	flag.IntVar(&c.Callers, "callers", 5, "callers in each process")
	flag.DurationVar(&c.Duration, "d", 10*time.Second, "the duration of each measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exitOn(compare(ctx, os.Stdout, c, strings.Split(*counts, ",")))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "limiters:", err)
		os.Exit(1)
	}
}

// compare measures each limiter with each number of processes, and prints a table.
func compare(ctx context.Context, w io.Writer, c config, counts []string) error {
	fmt.Fprintf(w, "%d/s, burst %d, %d callers in each process, %v\n\n", c.Rate, c.Burst, c.Callers, c.Duration)
	fmt.Fprintln(w, "| limiter | processes | slots/s | worst second | failed | scripts for a slot | Jain's index |")
	fmt.Fprintln(w, "| --- | --: | --: | --: | --: | --: | --: |")
	for _, text := range counts {
		processes, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		for _, name := range []string{nameFleet, nameRedisRate} {
			c.Limiter = name
			m, err := measure(ctx, c, processes)
			if err != nil {
				return fmt.Errorf("%s with %d processes: %w", name, processes, err)
			}
			fmt.Fprintf(w, "| %s | %d | %.0f | %d | %d | %.2f | %.3f |\n",
				name, processes, m.perSecond(c.Duration), m.worstSecond(), m.failed, m.scriptsPerSlot(), m.jain())
		}
	}
	return nil
}

// A measurement is the result of all processes.
type measurement struct {
	slots     []int64 // when they were granted, as Unix time in µs, ascending
	byProcess []float64
	failed    int
	scripts   int64
}

// measure runs the processes on an empty Redis.
func measure(ctx context.Context, c config, processes int) (*measurement, error) {
	ctx, cancel := context.WithCancel(ctx) // kills the processes
	defer cancel()
	rdb, stop, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	c.Addr = rdb.Options().Addr
	running := make([]*process, processes)
	for i := range running {
		if running[i], err = startProcess(ctx, c); err != nil {
			return nil, err
		}
	}
	for _, p := range running {
		if err := p.awaitReady(); err != nil {
			return nil, err
		}
	}
	if err := rdb.ConfigResetStat(ctx).Err(); err != nil {
		return nil, err
	}
	for _, p := range running {
		p.begin()
	}
	m := new(measurement)
	for _, p := range running {
		r, err := p.result()
		if err != nil {
			return nil, err
		}
		m.slots = append(m.slots, r.Slots...)
		m.byProcess = append(m.byProcess, float64(len(r.Slots)))
		m.failed += r.Failed
	}
	slices.Sort(m.slots)
	m.scripts, err = countScripts(ctx, rdb)
	return m, err
}

func (m *measurement) perSecond(d time.Duration) float64 { return float64(len(m.slots)) / d.Seconds() }

func (m *measurement) scriptsPerSlot() float64 { return float64(m.scripts) / float64(len(m.slots)) }

// worstSecond returns the largest number of slots in a sliding second.
func (m *measurement) worstSecond() int {
	worst, first := 0, 0
	for i, slot := range m.slots {
		for slot-m.slots[first] >= 1_000_000 {
			first++
		}
		worst = max(worst, i-first+1)
	}
	return worst
}

// jain returns Jain's fairness index, which is 1 if all processes got the same number of slots.
func (m *measurement) jain() float64 {
	sum, squares := 0.0, 0.0
	for _, n := range m.byProcess {
		sum += n
		squares += n * n
	}
	return sum * sum / (float64(len(m.byProcess)) * squares)
}

// startRedis starts a server on a free port. The caller must call stop.
func startRedis(ctx context.Context) (rdb *redis.Client, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	addr := listener.Addr().(*net.TCPAddr)
	listener.Close()
	port := strconv.Itoa(addr.Port)
	server := exec.CommandContext(ctx, "redis-server", "--port", port, "--save", "", "--maxclients", "20000")
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	rdb = redis.NewClient(&redis.Options{Addr: addr.String(), ContextTimeoutEnabled: true})
	stop = func() {
		_ = rdb.Close()
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	for range 100 {
		if err = rdb.Ping(ctx).Err(); err == nil {
			return rdb, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return nil, nil, fmt.Errorf("redis-server does not respond: %w", err)
}

var scriptCalls = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)

// countScripts returns how many scripts the server has run.
func countScripts(ctx context.Context, rdb *redis.Client) (int64, error) {
	info, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, match := range scriptCalls.FindAllStringSubmatch(info, -1) {
		n, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// A process is a child process.
type process struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(ctx context.Context, c config) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	return &process{in, bufio.NewReader(out)}, nil
}

func (p *process) awaitReady() error {
	_, err := p.out.ReadString('\n')
	return err
}

// begin ends the input of the process, which then begins.
func (p *process) begin() { _ = p.in.Close() }

func (p *process) result() (r result, err error) {
	return r, json.NewDecoder(p.out).Decode(&r)
}
