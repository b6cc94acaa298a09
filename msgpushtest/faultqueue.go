package msgpushtest

import (
	"fmt"
	"slices"
)

// A queuedFault is an injected fault and counts its uses.
type queuedFault struct {
	Fault
	uses        int
	matchCalled bool // the functions of If were called, if there are any
}

// Inject queues faults. A request uses the first one that applies. Without Always, a fault leaves the queue
// after one use, or n with Times(n). The zero Fault, [Delay] and [Truncate] use the usual response; with
// another fault, the server checks neither the request nor its key.
//
// A [BadRecord] changes the usual response. So a request can use it in addition to another fault, and can use
// several.
func (s *Server) Inject(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		s.faults = append(s.faults, &queuedFault{Fault: f})
	}
}

// ClearFaults removes all faults, used or not.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// nextFault returns the fault that a request uses, or the zero Fault if none applies. badRecords are the
// faults of BadRecord that the request uses if its usual response has their record.
func (s *Server) nextFault(request Request) (used Fault, badRecords []*queuedFault) {
	s.mu.Lock()
	queue := slices.Clone(s.faults)
	s.mu.Unlock()
	for _, f := range queue {
		if f.badRecord != "" && s.applies(f, request) {
			badRecords = append(badRecords, f)
		}
	}
	for _, f := range queue {
		if f.badRecord != "" || !s.applies(f, request) {
			continue
		}
		if s.use(f) {
			return f.Fault, badRecords
		}
	}
	return Fault{}, badRecords
}

// applies reports whether a request meets all conditions of f.
func (s *Server) applies(f *queuedFault, request Request) bool {
	isSelected := slices.Contains(f.operations, request.Operation) || slices.Contains(f.operations, request.Path)
	if len(f.operations) > 0 && !isSelected {
		return false
	}
	s.mu.Lock()
	f.matchCalled = true
	s.mu.Unlock()
	for _, match := range f.conditions {
		if !match(request) {
			return false
		}
	}
	return true
}

// use counts a use of f, and removes f after the last one. It returns false if f is not queued.
func (s *Server) use(f *queuedFault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.faults, f)
	if i < 0 { // ClearFaults has removed it
		return false
	}
	f.uses++
	if !f.always && f.uses >= f.times {
		s.faults = slices.Delete(s.faults, i, i+1)
	}
	return true
}

// unusedFaults returns an error text for each fault that was used too seldom. It is called with mu held.
func (s *Server) unusedFaults() []string {
	var texts []string
	for _, f := range s.faults {
		if f.uses == 0 || !f.always {
			texts = append(texts, fmt.Sprintf("the fault %s was %s: send a request that uses it, or call ClearFaults",
				f.describe(), f.describeUses()))
		}
	}
	return texts
}

// describeUses returns the uses of a fault that was used too seldom, for the error about it.
func (f *queuedFault) describeUses() string {
	if f.uses > 0 {
		return fmt.Sprintf("used by %d of %d requests", f.uses, f.times)
	}
	if len(f.conditions) == 0 && f.badRecord != "" {
		return "never used, since no response had the record"
	}
	if len(f.conditions) == 0 {
		return "never used"
	}
	if f.matchCalled {
		return "never used, and match selected no request"
	}
	return "never used, and match was never called"
}
