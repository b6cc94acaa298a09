package msgpushtest

import (
	"fmt"
	"regexp"
	"runtime"
	"time"
)

// bubbleInTrace matches the first line of a stack trace in a synctest bubble, such as "goroutine 7
// [running, synctest bubble 3]:".
var bubbleInTrace = regexp.MustCompile(`^goroutine \d+ \[[^]\n]*synctest bubble (\d+)`)

// currentBubble returns the number of the synctest bubble of the calling goroutine, or "". Only a
// stack trace shows it.
func currentBubble() string {
	trace := make([]byte, 100)
	match := bubbleInTrace.FindSubmatch(trace[:runtime.Stack(trace, false)])
	if match == nil {
		return ""
	}
	return string(match[1])
}

// isOutsideBubble reports whether the caller is in a synctest bubble, and tb is a *testing.T
// outside it. A server that such a test closes would outlive the bubble. Deadline panics only for
// the t of a bubble.
func isOutsideBubble(tb TB) (outside bool) {
	t, ok := tb.(interface{ Deadline() (time.Time, bool) })
	if !ok || currentBubble() == "" {
		return false
	}
	defer func() { outside = recover() == nil }()
	t.Deadline()
	return false
}

// checkBubble panics unless the caller and the server are in the same synctest bubble, or neither
// is in one. Otherwise the runtime would end the program, or time in the bubble would not pass. The
// message names method.
func (s *Server) checkBubble(method string) {
	s.lock()
	s.mu.Unlock()
	switch bubble := currentBubble(); {
	case bubble == s.bubble:
	case s.bubble == "":
		panic(fmt.Sprintf("msgpushtest: %s: the server was made outside the synctest bubble that uses it: "+
			"make it inside, with the t of the bubble and the option InMemory()", method))
	default:
		panic(fmt.Sprintf("msgpushtest: %s: the server was made inside a synctest bubble, and is used outside it: "+
			"use it only inside", method))
	}
}
