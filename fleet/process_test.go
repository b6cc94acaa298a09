//go:build unix

package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"example.com/msgpush"
	"example.com/msgpush/fleet"
)

var all = flag.Bool("all", false, "also run the tests that take long, or need an idle machine")

func skipUnlessAll(t *testing.T) {
	t.Helper()
	if !*all {
		t.Skip("takes long, or needs an idle machine: run it with -all")
	}
}

// TestMain runs the tests, or a replica or the reaper if a test started the binary as one.
func TestMain(m *testing.M) {
	redis.SetLogger(noLog{}) // go-redis logs each failed connection
	if text := os.Getenv("FLEET_REPLICA"); text != "" {
		runReplica(text)
		return
	}
	if os.Getenv("FLEET_REAPER") != "" {
		runReaper()
		return
	}
	os.Exit(m.Run())
}

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

// The reaper kills the processes that a test binary leaves behind, such as after a timeout of the
// test. It reads the id of each process that starts, and the negative id of each that has ended.
// When its input ends, it kills the others.
var reaper = sync.OnceValue(func() io.Writer {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FLEET_REAPER=1")
	input, err := cmd.StdinPipe()
	if err != nil {
		panic(err)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return input
})

func runReaper() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	alive := make(map[int]bool)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		id, _ := strconv.Atoi(in.Text())
		alive[max(id, -id)] = id > 0
	}
	for id := range maps.Keys(alive) {
		if alive[id] {
			_ = syscall.Kill(id, syscall.SIGKILL)
		}
	}
}

// A process is killed when the test ends.
type process struct {
	*exec.Cmd
	wait func() error
}

func startProcess(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	require.NoError(t, cmd.Start())
	fmt.Fprintln(reaper(), cmd.Process.Pid)
	p := &process{cmd, sync.OnceValue(func() error {
		err := cmd.Wait()
		fmt.Fprintln(reaper(), -cmd.Process.Pid)
		return err
	})}
	t.Cleanup(p.kill)
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.Process.Signal(s) }

// kill kills the process and waits for its end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	_ = p.wait()
}

// A redisServer is a process on a free port, without data on disk.
type redisServer struct {
	*process
	t    testing.TB
	addr string
	args []string
	*redis.Client
}

// startRedis starts a server. With -short, or if redis-server is not installed, it skips the test.
// In CI, the test fails if redis-server is not installed.
func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		const text = "redis-server is not installed: apt-get install redis-server, or brew install redis"
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &redisServer{t: t, addr: listener.Addr().String(), args: args}
	require.NoError(t, listener.Close())
	r.Client = redis.NewClient(&redis.Options{Addr: r.addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = r.Close() })
	r.start()
	return r
}

// start starts a server, or restarts a killed server without its data.
func (r *redisServer) start() {
	r.t.Helper()
	_, port, _ := net.SplitHostPort(r.addr)
	args := append(
		[]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", r.t.TempDir()},
		r.args...)
	r.process = startProcess(r.t, exec.Command("redis-server", args...))
	await(r.t, 5*time.Second, "redis-server starts", func() bool {
		conn, err := net.Dial("tcp", r.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// commands returns how often the server ran a command.
func (r *redisServer) commands(name string) (n int) {
	_, line, found := strings.Cut(r.Info(r.t.Context(), "commandstats").Val(), "cmdstat_"+name+":calls=")
	if found {
		_, err := fmt.Sscan(strings.Split(line, ",")[0], &n)
		require.NoError(r.t, err)
	}
	return n
}

const (
	redisKey = "msgpush:1:key:{acme}"
	rateKey  = "msgpush:1:rate:{acme}"
)

// await polls a condition, since most conditions change in another process.
func await(t testing.TB, timeout time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, timeout)
		}
	}
}

// A service issues access keys and responds to calls. A new key invalidates the one before it.
type service struct {
	*httptest.Server
	fetchTime atomic.Int64 // how long issuing a key takes
	failing   atomic.Bool  // issuing fails

	rejectedAgent string // the User-Agent of a replica whose keys are all rejected

	mu       sync.Mutex
	key      string
	issued   []time.Time
	rejected int
	arrivals []time.Time // of calls
}

func newService(t testing.TB) *service {
	s := &service{}
	mux := http.NewServeMux()
	mux.HandleFunc("/issue", s.issue)
	mux.HandleFunc("/api/open/forwardRule/list", s.list)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *service) issue(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.issued = append(s.issued, time.Now())
	n := len(s.issued)
	s.mu.Unlock()
	time.Sleep(time.Duration(s.fetchTime.Load()))
	if s.failing.Load() {
		http.Error(w, "failing", http.StatusServiceUnavailable)
		return
	}
	s.mu.Lock()
	s.key = fmt.Sprintf("secret-key-%d", n)
	_, _ = io.WriteString(w, s.key)
	s.mu.Unlock()
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	s.arrivals = append(s.arrivals, time.Now())
	isCurrent := r.Header.Get("access-key") == s.key
	ok := isCurrent && (s.rejectedAgent == "" || r.UserAgent() != s.rejectedAgent)
	if !ok {
		s.rejected++
	}
	s.mu.Unlock()
	if ok {
		_, _ = io.WriteString(w, `{"code":200,"msg":"ok","data":{"pageNum":1,"pageSize":20,"total":0,"pages":0,"list":[]}}`)
		return
	}
	_, _ = io.WriteString(w, `{"code":401,"msg":"access key","data":null}`)
}

// reject invalidates the current key.
func (s *service) reject() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = "none"
}

func (s *service) currentKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

func (s *service) issues() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.issued)
}

// reset forgets the calls, and returns their times and the number of rejected ones.
func (s *service) reset() (arrivals []time.Time, rejected int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	arrivals, rejected = s.arrivals, s.rejected
	s.arrivals, s.rejected = nil, 0
	return arrivals, rejected
}

// A config configures a replica. Zero values of FetchTimeout, MinInterval and Burst mean the
// defaults of fleet.
type config struct {
	Redis, Service, UserAgent string
	FetchTimeout, MinInterval time.Duration
	Early, Validity           time.Duration // of a key
	Hold                      string        // a fetch ignores its context and lasts until this file exists
	Encrypt                   bool
	Rate, Burst               int // Rate is per second; 0 for no limiter
	Fallback                  float64
	Cluster                   bool   // Redis is the address of a node
	Sentinel                  string // an address; if set, Redis is ignored
}

func (c config) newClient() redis.UniversalClient {
	switch {
	case c.Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Redis}, ContextTimeoutEnabled: true})
	case c.Sentinel != "":
		return redis.NewFailoverClient(
			&redis.FailoverOptions{MasterName: "master", SentinelAddrs: []string{c.Sentinel}, ContextTimeoutEnabled: true})
	}
	return redis.NewClient(&redis.Options{Addr: c.Redis, ContextTimeoutEnabled: true})
}

// A result is the response of a replica to a command.
type result struct {
	OK, Failed       int
	Errors           map[string]int
	Key, Text        string
	Elapsed, Longest time.Duration
	LastFailed       time.Time
}

// A replica is a process of the test binary.
type replica struct {
	*process
	t   testing.TB
	in  io.Writer
	out *bufio.Scanner
}

func startReplica(t testing.TB, c config) *replica {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FLEET_REPLICA="+string(text), "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	r := &replica{t: t}
	r.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	r.out = bufio.NewScanner(out)
	r.process = startProcess(t, cmd)
	require.True(t, r.out.Scan(), "the replica is ready")
	return r
}

func startReplicas(t testing.TB, n int, c config) []*replica {
	t.Helper()
	replicas := make([]*replica, n)
	for i := range replicas {
		replicas[i] = startReplica(t, c)
	}
	return replicas
}

// begin sends a command. The function that it returns waits for the result, which is the zero
// result if the replica was killed.
func (r *replica) begin(format string, args ...any) func() result {
	fmt.Fprintf(r.in, format+"\n", args...)
	return func() (res result) {
		if r.out.Scan() {
			require.NoError(r.t, json.Unmarshal(r.out.Bytes(), &res))
		}
		return res
	}
}

func (r *replica) do(format string, args ...any) result { return r.begin(format, args...)() }

func beginAll(replicas []*replica, format string, args ...any) func() result {
	var waits []func() result
	for _, r := range replicas {
		waits = append(waits, r.begin(format, args...))
	}
	return func() result {
		sum := result{Errors: map[string]int{}}
		for _, wait := range waits {
			res := wait()
			sum.OK += res.OK
			sum.Failed += res.Failed
			sum.Longest = max(sum.Longest, res.Longest)
			if res.LastFailed.After(sum.LastFailed) {
				sum.LastFailed = res.LastFailed
			}
			for text, n := range res.Errors {
				sum.Errors[text] += n
			}
		}
		return sum
	}
}

func doAll(replicas []*replica, format string, args ...any) result {
	return beginAll(replicas, format, args...)()
}

// fetch obtains a key from the service.
func (c config) fetch(ctx context.Context) (string, time.Time, error) {
	if c.Hold != "" {
		ctx = context.WithoutCancel(ctx)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Service+"/issue", nil)
	if err != nil {
		return "", time.Time{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", time.Time{}, err
	}
	defer resp.Body.Close()
	key, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", time.Time{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return "", time.Time{}, fmt.Errorf("HTTP %s", resp.Status)
	}
	for c.Hold != "" {
		if _, err := os.Stat(c.Hold); err == nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	var expires time.Time
	if c.Validity > 0 {
		expires = time.Now().Add(c.Validity)
	}
	return string(key), expires, nil
}

// runReplica is the main function of a replica. It prints one line when it is ready. Then each line
// of its input is a command, and each line of its output the result.
func runReplica(text string) {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	o := c.open()
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		begin := time.Now()
		res := o.do(strings.Fields(in.Text()))
		res.Elapsed = time.Since(begin)
		text, _ := json.Marshal(res)
		fmt.Println(string(text))
	}
}

// An openReplica has the values that the commands of a replica use.
type openReplica struct {
	config config
	source *fleet.KeySource
	client *msgpush.Client
}

func (c config) open() *openReplica {
	rdb := c.newClient()
	cfg := fleet.KeyOptions{
		Name:         "acme",
		Fetch:        c.fetch,
		Early:        c.Early,
		FetchTimeout: c.FetchTimeout,
		MinInterval:  c.MinInterval,
	}
	if c.Encrypt {
		cfg.AEAD = newAEAD("0123456789abcdef")
	}
	source, err := fleet.NewKeySource(rdb, cfg)
	if err != nil {
		panic(err)
	}
	o := &openReplica{config: c, source: source}
	opts := []msgpush.Option{
		msgpush.WithAccessKeySource(source),
		msgpush.WithRejectedKeyCodes(401),
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}), // so that failures are seen
	}
	if c.UserAgent != "" {
		opts = append(opts, msgpush.WithUserAgent(c.UserAgent))
	}
	if c.Rate > 0 {
		opts = append(opts, msgpush.WithRateLimiter(c.newLimiter(rdb)))
	}
	o.client, err = msgpush.NewClient(c.Service, "", opts...)
	if err != nil {
		panic(err)
	}
	return o
}

func (c config) newLimiter(rdb redis.UniversalClient) *fleet.Limiter {
	cfg := fleet.LimiterOptions{Name: "acme", Rate: c.Rate, Per: time.Second, Burst: c.Burst}
	if c.Fallback > 0 {
		cfg.Fallback = rate.NewLimiter(rate.Limit(c.Fallback), 1)
	}
	limiter, err := fleet.NewLimiter(rdb, cfg)
	if err != nil {
		panic(err)
	}
	return limiter
}

// do runs a command.
func (o *openReplica) do(words []string) (res result) {
	switch words[0] {
	case "call": // N D: N callers, once each or for D
		callers, _ := strconv.Atoi(words[1])
		d, _ := time.ParseDuration(words[2])
		return o.config.call(o.client, callers, d)
	case "background": // begins to obtain a key
		go o.source.AccessKey(context.Background(), "")
	case "key": // or "key REJECTED"
		rejected := strings.Join(words[1:], "")
		key, err := o.source.AccessKey(context.Background(), rejected)
		res.Key = key
		if err != nil {
			res.Text = err.Error()
		}
	case "keys": // N: gets the key N times
		n, _ := strconv.Atoi(words[1])
		for range n {
			_, _ = o.source.AccessKey(context.Background(), "")
		}
	case "close":
		_ = o.source.Close()
	case "print":
		res.Text = fmt.Sprintf("%v %+v %#v %s %x %+v", o.source, o.source, o.source, o.source, o.source,
			struct{ s *fleet.KeySource }{o.source})
	}
	return res
}

func (c config) call(client *msgpush.Client, callers int, d time.Duration) result {
	res := result{Errors: map[string]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for first := true; first || time.Since(start) < d; first = false {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				begin := time.Now()
				_, err := client.ForwardRuleList(ctx, msgpush.PageRequest{})
				elapsed := time.Since(begin)
				cancel()
				mu.Lock()
				res.Longest = max(res.Longest, elapsed)
				if err == nil {
					res.OK++
				} else {
					res.Failed++
					res.LastFailed = time.Now()
					if len(res.Errors) < 5 {
						res.Errors[err.Error()]++
					}
				}
				mu.Unlock()
				if errors.Is(err, fleet.ErrBudgetExceeded) {
					time.Sleep(100 * time.Millisecond) // the error comes immediately: avoid a busy loop
				} else if d > 0 && (err != nil || c.Rate == 0) {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return res
}

// worstSecond returns the largest number of times within one second.
func worstSecond(times []time.Time) (worst int) {
	times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	first := 0
	for last := range times {
		for times[last].Sub(times[first]) >= time.Second {
			first++
		}
		worst = max(worst, last-first+1)
	}
	return worst
}

// readmeLine returns the line of the README that begins with prefix.
func readmeLine(t testing.TB, prefix string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("README.md has no line that begins with %q", prefix)
	return ""
}

// monitorSlots records the slots that the store grants, if no call has a deadline that is too
// short. The function that it returns ends the recording and returns the begins of the slots.
func monitorSlots(t testing.TB, rdb *redisServer, perSecond int) func() []time.Time {
	t.Helper()
	const argument = `"` + rateKey + `" "`
	conn, err := net.Dial("tcp", rdb.addr)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "MONITOR\r\n")
	require.NoError(t, err)
	in := bufio.NewScanner(conn)
	require.True(t, in.Scan())
	require.Equal(t, "+OK", in.Text())
	slots := make(chan []time.Time, 1)
	go func() {
		calls := 0
		var all []time.Time
		for in.Scan() {
			command, args, found := strings.Cut(in.Text(), argument)
			switch {
			case !found:
			case strings.Contains(command, `] "eval`):
				calls = strings.Count(args, `" "`) + 1 - 3 // the first 3 arguments are not of a call
			case strings.Contains(command, `"SET"`):
				free, err := strconv.ParseFloat(strings.Fields(args)[0], 64)
				assert.NoError(t, err)
				for n := range calls {
					all = append(all, time.UnixMicro(int64(free)-int64(calls-n)*1_000_000/int64(perSecond)))
				}
			}
		}
		slots <- all
	}()
	return func() []time.Time {
		conn.Close()
		return <-slots
	}
}

// calls returns the number of calls since the last reset.
func (s *service) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.arrivals)
}
