package msgpushtest

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// This file detects uses of a server that would end in a hang, or in an error of the runtime
// that does not name the mistake.

// firstLine matches the first line of a stack trace, such as
// "goroutine 7 [running, synctest bubble 3]:".
var firstLine = regexp.MustCompile(`^goroutine (\d+) \[(?:[^]\n]*synctest bubble (\d+))?`)

// caller returns the number of the calling goroutine, and that of its synctest bubble, or
// "". Only a stack trace shows them.
func caller() (goroutine, bubble string) {
	trace := make([]byte, 100)
	match := firstLine.FindSubmatch(trace[:runtime.Stack(trace, false)])
	if match == nil {
		return "", ""
	}
	return string(match[1]), string(match[2])
}

// lock locks s.mu. It panics if s was not made by New or NewServer, so every exported method
// calls lock or check before it uses s.
func (s *Server) lock() {
	if s == nil || s.closed == nil {
		panic("msgpushtest: the Server was not made by New or NewServer, which start it")
	}
	s.mu.Lock()
}

// check panics if s was not made by New or NewServer, or if the caller is not in the synctest
// bubble of s. method begins the message.
func (s *Server) check(method string) {
	s.lock()
	s.mu.Unlock()
	if problem := s.bubbleProblem(); problem != "" {
		panic(fmt.Sprintf("msgpushtest: %s: %s", method, problem))
	}
}

// isOutsideBubble reports whether the caller is in a synctest bubble, and tb is a *testing.T
// outside it. The bubble ends before such a test closes the server. Only for the t of a bubble,
// Deadline panics.
func isOutsideBubble(tb TB) (outside bool) {
	t, ok := tb.(interface{ Deadline() (time.Time, bool) })
	if _, bubble := caller(); bubble == "" || !ok {
		return false
	}
	defer func() { outside = recover() == nil }()
	t.Deadline()
	return false
}

// bubbleProblem returns a text if the caller and the server are not in the same synctest
// bubble, or only one of them is in a bubble. Both use the channels of the server: the runtime
// would end the program, or time in the bubble would not pass.
func (s *Server) bubbleProblem() string {
	switch _, bubble := caller(); {
	case bubble == s.bubble:
		return ""
	case s.bubble == "":
		return "the server was made outside the synctest bubble that uses it: make it inside, with the t of the bubble and the option InMemory()"
	default:
		return "the server was made inside a synctest bubble, and is used outside it: use it only inside"
	}
}

// checkRoundTrip panics if check does, or if a request of the calling goroutine could wait for a
// function that this goroutine runs.
func (s *Server) checkRoundTrip() {
	s.check("HTTPClient")
	for _, name := range s.calledIn() {
		if name == "OnRequest" || name == "If" || name == "UpdateBetweenPages" {
			panic(fmt.Sprintf("msgpushtest: the function given to %s sends a request, but the server calls the function for one request at a time: send the request elsewhere, or in another goroutine", name))
		}
	}
}

// A calledFunction is a running function that the test passed to name, such as "OnRequest".
type calledFunction struct{ name, goroutine string }

// calls records that this goroutine runs the function that the test passed to name. The caller
// calls returned when that function has ended.
func (s *Server) calls(name string) (returned func()) {
	goroutine, _ := caller()
	f := &calledFunction{name, goroutine}
	s.lock()
	s.called = append(s.called, f)
	s.mu.Unlock()
	return func() {
		s.lock()
		s.called = slices.DeleteFunc(s.called, func(g *calledFunction) bool { return g == f })
		s.mu.Unlock()
	}
}

// calledIn returns the names of the calledFunctions of the calling goroutine.
func (s *Server) calledIn() []string {
	goroutine, _ := caller()
	return s.calledWhere(func(f *calledFunction) bool { return f.goroutine == goroutine })
}

func (s *Server) calledWhere(match func(*calledFunction) bool) []string {
	s.lock()
	defer s.mu.Unlock()
	var names []string
	for _, f := range s.called {
		if match(f) {
			names = append(names, f.name)
		}
	}
	return names
}

// waitText says which functions Close waits for. That of Update is left out: it runs in the
// goroutine that called Update, for which Close does not wait.
func (s *Server) waitText() string {
	names := s.calledWhere(func(f *calledFunction) bool { return f.name != "Update" })
	if len(names) == 0 {
		return "msgpushtest: Close waits for a response that is in progress"
	}
	slices.Sort(names)
	return "msgpushtest: Close waits for the function given to " + strings.Join(slices.Compact(names), " and ") + ", which has not returned"
}
