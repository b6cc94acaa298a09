package msgpushtest

import (
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"
)

// patience is how long something waits before the server reports it. In a synctest bubble, nothing
// is reported: a function may sleep for hours, and the runtime reports deadlocks, but not of locks.
const patience = 5 * time.Second

// lastPatience is how long a function of Update may go on after patience. Then the program ends:
// the function runs in the goroutine of the test, which nothing else could end.
const lastPatience = 2 * time.Second

// A testState is the state of a server's test.
type testState struct {
	tb      TB             // of New, or nil
	running map[string]int // number of running functions of the test, by the method that got them
	panics  []string       // texts about functions of the test; endTest returns them
	failed  chan struct{}  // closed, with mu held, when the test has failed for a wait
	ended   bool
}

// noPatience returns a channel that receives when patience has ended: immediately if the test has
// failed for a wait before, and never in a bubble.
func (s *Server) noPatience() <-chan time.Time {
	switch {
	case s.bubble != "":
		return nil
	case s.hasFailed():
		return time.After(0)
	default:
		return time.After(patience)
	}
}

// hasFailed reports whether the test has failed for a wait.
func (s *Server) hasFailed() bool {
	select {
	case <-s.test.failed:
		return true
	default:
		return false
	}
}

// complain logs a long wait, or fails the running test if the wait could last for ever. mustEnd is
// forEver, but false for a server of NewServer.
func (s *Server) complain(forEver bool, format string, args ...any) (mustEnd bool) {
	text := fmt.Sprintf("msgpushtest: "+format, args...)
	s.lock()
	defer s.mu.Unlock()
	switch {
	case s.test.tb == nil:
		log.Print(text)
		return false
	case s.test.ended:
	case !forEver:
		s.test.tb.Logf("%s", text)
	case !s.hasFailed():
		close(s.test.failed)
		s.test.tb.Errorf("%s", text)
		for conn := range s.conns { // so that no client waits for a response: its retry gets an error response
			_ = conn.Close()
		}
	}
	return forEver
}

// lock locks s.mu. It panics if s was not made by New or NewServer.
func (s *Server) lock() {
	if s == nil || s.closed == nil {
		panic("msgpushtest: the Server was not made by New or NewServer, which start it")
	}
	s.mu.Lock()
}

// acquire waits for a semaphore that is held while a function of the test runs. It returns false if
// the wait must end: if end is closed, or if the test has failed.
func (s *Server) acquire(sem chan struct{}, end <-chan struct{}) bool {
	select {
	case sem <- struct{}{}: // even if end is closed, since there is no wait
		return true
	default:
	}
	select {
	case sem <- struct{}{}:
		return true
	case <-end:
		return false
	case <-s.test.failed:
		return false
	}
}

// acquireInHandler is acquire for a request. It aborts the response if the wait must end.
func (s *Server) acquireInHandler(sem chan struct{}) (release func()) {
	if !s.acquire(sem, s.closed) {
		panic(http.ErrAbortHandler)
	}
	return func() { <-sem }
}

// runs records that the function that the test passed to the method name runs. Outside a bubble,
// the function is reported unless returned is called within patience.
func (s *Server) runs(name string) (returned func()) {
	ended := make(chan struct{})
	stop := func() bool { return true }
	if s.bubble == "" {
		stop = time.AfterFunc(patience, func() { s.reportFunction(name, ended) }).Stop
	}
	s.lock()
	defer s.mu.Unlock()
	s.test.running[name]++
	return func() {
		stop()
		close(ended)
		s.lock()
		defer s.mu.Unlock()
		s.test.running[name]--
	}
}

// reportFunction reports a function that has not returned when patience has ended.
func (s *Server) reportFunction(name string, ended <-chan struct{}) {
	const advice = "it must return soon, and must not wait for another request, another update, Close, " +
		"or a lock or channel of the test"
	isFailure := name != "Respond" // a test may use Respond for a request that hangs
	s.complain(isFailure, "the function given to %s has not returned after %v: %s", name, patience, advice)
	if s.test.tb == nil || name != "Update" {
		return
	}
	select {
	case <-ended:
		return
	case <-time.After(lastPatience):
	}
	s.lock()
	defer s.mu.Unlock()
	if !s.test.ended {
		panic(fmt.Sprintf("msgpushtest: the function given to Update does not return: %s", advice))
	}
}

// waitForFunctions waits until the goroutines that the server started have ended, or patience has.
func (s *Server) waitForFunctions() {
	ended := make(chan struct{})
	go func() {
		s.goroutines.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-s.noPatience():
	}
	if !s.complain(true, "Close has waited %v for %s: end it before the server is closed", patience, s.unfinished()) {
		panic("msgpushtest: Close has waited too long: see the log")
	}
}

// unfinished describes what Close waits for. The function of Update is left out: it runs in the
// goroutine that called Update.
func (s *Server) unfinished() string {
	s.lock()
	defer s.mu.Unlock()
	var names []string
	for name, n := range s.test.running {
		if n > 0 && name != "Update" {
			names = append(names, name)
		}
	}
	if names == nil {
		return "a response that is in progress"
	}
	slices.Sort(names)
	return "the function given to " + strings.Join(names, " and ") + ", which has not returned, or has called Close"
}
