// Fakeserver serves the fake server of package msgpushtest, for tests in any language.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/msgpush/msgpushtest"
)

//go:embed usage.txt
var usage string

// settings are the values of the flags.
type settings struct {
	addr    string
	key     string
	records string        // a file; empty for the sample records
	insert  time.Duration // between new trigger records; 0 for none
	latency time.Duration
	control bool
	faults  []msgpushtest.Fault
	cors    string // the origin of pages that may send requests
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
	if err := run(ctx, set, os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

func (s *settings) defineFlags(flags *flag.FlagSet) {
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8181", "`ADDRESS` to listen on; port 0 is a free port")
	flags.StringVar(&s.key, "key", "test-key", "access `KEY` to accept")
	flags.DurationVar(&s.insert, "insert", 0,
		"`INTERVAL` between new trigger records, such as 10s; by default, none are inserted")
	flags.BoolVar(&s.control, "control", false, "serve the control interface")
	flags.StringVar(&s.records, "records", "", "JSON `FILE` with the records, instead of the sample records")
	flags.DurationVar(&s.latency, "latency", 0, "delay of each response")
	flags.Func("fail", "respond to a share of the requests with an HTTP status: `STATUS:SHARE`, such as 503:0.1",
		s.addFault(parseFailure))
	flags.Func("fault",
		"fault of every request for an operation or a page: `FAULT@OPERATION[:PAGE]`, such as reset@ForwardLogList:2",
		s.addFault(parseFaultOf))
	flags.StringVar(&s.cors, "cors", "",
		"`ORIGIN` of web pages that may send requests, such as http://localhost:3000 or *")
}

// addFault returns a function that adds the fault of a flag.
func (s *settings) addFault(parse func(string) (msgpushtest.Fault, error)) func(string) error {
	return func(text string) error {
		fault, err := parse(text)
		s.faults = append(s.faults, fault)
		return err
	}
}

// run serves until ctx ends.
func run(ctx context.Context, set settings, stdout, stderr io.Writer) error {
	if set.latency < 0 {
		return errors.New("-latency must not be negative")
	}
	if set.insert < 0 {
		return errors.New("-insert must not be negative")
	}
	if err := checkKey(set.key); err != nil {
		return fmt.Errorf("-key: %w", err)
	}
	fake := msgpushtest.NewServer(msgpushtest.InMemory()) // the requests come through the handler
	defer fake.Close()
	records, err := readRecords(set.records)
	if err != nil {
		return err
	}
	fake.SetLatency(set.latency)
	requests, faults := new(requestLog), &clientFaults{fake: fake, seen: map[clientFault]bool{}}
	fake.OnRequest(func(r msgpushtest.Request) {
		requests.add(r)
		fake.ClearRequests() // otherwise they take more and more memory
	})
	reset := func() {
		fake.SetRecords(records)
		fake.ReplaceKey(set.key)
		faults.clear()
		fake.Inject(set.faults...)
		requests.clear()
	}
	reset()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", set.addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "URL: http://%s\nAccess key: %s\n", listener.Addr(), set.key)
	if set.insert > 0 {
		go insertRecords(ctx, fake, set.insert)
	}
	handler := http.Handler(faults)
	if set.control {
		handler = withControl(fake, faults, requests, reset)
	}
	handler = logRequests(handler, stderr)
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

// logRequests writes a line for each response. It omits what may contain a key or a password: the header, the
// query and the body.
func logRequests(next http.Handler, w io.Writer) http.Handler {
	logger := log.New(w, "", log.LstdFlags)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: rw, status: http.StatusOK}
		defer func() { // also if the handler aborts the response
			logger.Printf("%s %q %d %v", r.Method, r.URL.Path, recorder.status, time.Since(start).Round(time.Microsecond))
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
