// Fakeserver serves the fake server of package msgpushtest, for tests in any language.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/msgpush/msgpushtest"
)

const usage = `usage: fakeserver [flags]

Fakeserver serves the operations that the API document specifies, on sample
records or on those of a file, until it is interrupted. On standard output, it
prints MSGPUSH_BASE_URL=… and, if it made the access key, MSGPUSH_ACCESS_KEY=…. On
standard error, it prints a line for each request: time, method, path, HTTP status
and duration.

A file of records is JSON. Its fields have the names of the API document. A list
that is missing has no records:

  {
    "mailChannels": [{"id": 1, "mailName": "alerts", "password": "secret"}],
    "mpChannels":   [{"id": 2, "nickName": "operations"}],
    "forwardRules": [{"id": 3, "ruleName": "all"}],
    "forwardLogs":  [{"id": 4, "ruleId": 3}]
  }

A request with a header "Fakeserver-Fault" gets a fault:

  status:503     an HTTP status without a body; status:503:2 also sends Retry-After: 2
  delay:2s       the usual response, later
  reset          the connection is reset before the response
  truncate       the connection ends in the middle of the body
  html           a page in HTML with HTTP status 200
  rejected-key   the access key is rejected

Environment:
  MSGPUSH_ACCESS_KEY  access key to accept; the default is a random one

An interrupt or SIGTERM shuts the server down: it accepts no more requests and
completes those in progress. A second one kills it.

The exit status is 0 if the program was interrupted.

`

// settings are the values of the flags.
type settings struct {
	addr    string
	records string // a file; empty for the sample records
	latency time.Duration
	fail    failure
	fault   faultOf
	cors    string // the origin of pages that may send requests
}

// A failure is the HTTP status of a share of the responses.
type failure struct {
	status int
	share  float64 // 0 to 1
}

// Set and String implement flag.Value.
func (f *failure) Set(value string) error {
	status, share, _ := strings.Cut(value, ":")
	var err error
	f.status, err = parseStatus(status)
	if err != nil {
		return err
	}
	f.share, err = strconv.ParseFloat(share, 64)
	isShare := f.share >= 0 && f.share <= 1 // false for NaN
	if err != nil || !isShare {
		return fmt.Errorf("%q is not a share from 0 to 1", share)
	}
	return nil
}

func (f *failure) String() string {
	if f.share == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%v", f.status, f.share)
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("fakeserver: ")
	var set settings
	set.defineFlags(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unexpected argument %q", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	if err := run(ctx, set, os.Getenv("MSGPUSH_ACCESS_KEY"), os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

func (s *settings) defineFlags(flags *flag.FlagSet) {
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8181", "`ADDRESS` to listen on; port 0 is a free port")
	flags.StringVar(&s.records, "records", "", "JSON `FILE` with the records, instead of the sample records")
	flags.DurationVar(&s.latency, "latency", 0, "delay of each response")
	flags.Var(&s.fail, "fail", "respond to a share of the requests with an HTTP status: `STATUS:SHARE`, such as 503:0.1")
	flags.Var(&s.fault, "fault",
		"fault of every request for an operation or a page: `FAULT@OPERATION[:PAGE]`, such as reset@ForwardLogList:2")
	flags.StringVar(&s.cors, "cors", "",
		"`ORIGIN` of web pages that may send requests, such as http://localhost:3000 or *")
}

// run serves until ctx ends.
func run(ctx context.Context, set settings, key string, stdout, stderr io.Writer) error {
	if set.latency < 0 {
		return errors.New("-latency must not be negative")
	}
	fake := msgpushtest.NewServer(msgpushtest.InMemory()) // the requests come through the handler
	defer fake.Close()
	records, err := readRecords(set.records)
	if err != nil {
		return err
	}
	fake.SetRecords(records)
	if key != "" {
		fake.SetAccessKey(key)
	}
	fake.SetLatency(set.latency)
	fake.OnRequest(func(msgpushtest.Request) { fake.ClearRequests() }) // otherwise they take more and more memory
	if set.fail.share > 0 {
		isChosen := func(msgpushtest.Request) bool { return rand.Float64() < set.fail.share }
		fake.Inject(msgpushtest.Status(set.fail.status).Always().If(isChosen))
	}
	if set.fault.text != "" {
		fake.Inject(set.fault.fault)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", set.addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "MSGPUSH_BASE_URL=http://%s\n", listener.Addr())
	if key == "" {
		fmt.Fprintf(stdout, "MSGPUSH_ACCESS_KEY=%s\n", fake.AccessKey())
	}
	handler := logRequests(injectFaults(fake), fake.AccessKey(), stderr)
	if set.cors != "" {
		handler = allowOrigin(set.cors, handler)
	}
	return serve(ctx, listener, handler)
}

// serve serves until ctx ends, and then completes the responses in progress.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, DisableGeneralOptionsHandler: true}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.WithoutCancel(ctx))
	}
}

// readRecords reads the records of a file, or returns the sample records if name is empty. A field
// that Records or a record does not have is an error, since it is probably misspelled.
func readRecords(name string) (records msgpushtest.Records, err error) {
	if name == "" {
		return msgpushtest.SampleRecords(), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return records, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&records); err != nil {
		return records, fmt.Errorf("%s: %w", name, err)
	}
	_, err = decoder.Token()
	if !errors.Is(err, io.EOF) {
		return records, fmt.Errorf("%s: expected the end of the file after the records", name)
	}
	return records, nil
}

// logRequests writes a line for each response. It omits what may contain a key or a password: the
// header, the query and the body.
func logRequests(next http.Handler, key string, w io.Writer) http.Handler {
	logger := log.New(w, "", log.LstdFlags)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: rw, status: http.StatusOK}
		path := strings.ReplaceAll(r.URL.Path, key, "[redacted]")
		defer func() { // also if the handler aborts the response
			logger.Printf("%s %q %d %v", r.Method, path, recorder.status, time.Since(start).Round(time.Microsecond))
		}()
		next.ServeHTTP(recorder, r)
	})
}

// A statusRecorder stores the HTTP status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is used by [http.ResponseController].
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
