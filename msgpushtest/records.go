package msgpushtest

import (
	"slices"

	"example.com/msgpush"
)

// Records holds the records of a [Server]. The zero value is an account without
// records.
type Records struct {
	MailChannels []msgpush.MailChannel
	MPChannels   []msgpush.MPChannel
	ForwardRules []msgpush.ForwardRule
	ForwardLogs  []msgpush.ForwardLog
}

func (r Records) clone() Records {
	return Records{
		MailChannels: slices.Clone(r.MailChannels),
		MPChannels:   slices.Clone(r.MPChannels),
		ForwardRules: slices.Clone(r.ForwardRules),
		ForwardLogs:  slices.Clone(r.ForwardLogs),
	}
}

// Records returns a copy of the server's records.
func (s *Server) Records() Records { return s.snapshot().clone() }

// SetRecords replaces the server's records with a copy of r.
func (s *Server) SetRecords(r Records) {
	s.Update(func(records *Records) { *records = r })
}

// Update calls f to change the server's records. The change is atomic: a response
// has the records from before or from after the change. Calls of f do not overlap, so
// f must not call Update or SetRecords.
func (s *Server) Update(f func(*Records)) {
	s.updateSem <- struct{}{}
	defer func() { <-s.updateSem }()
	records := s.Records()
	f(&records)
	records = records.clone() // the caller may later change slices that f stored
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = records
}

// UpdateBetweenPages sets a function that changes the server's records while a
// client iterates over a list. f is called, as by [Server.Update], before each page of
// a list except page 1. With [msgpush.Prefetch], several pages are requested at the
// same time, so several calls may precede one response. If f is nil, no function is
// called.
func (s *Server) UpdateBetweenPages(f func(*Records)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.betweenPages = f
}

// updateBeforePage calls the function of UpdateBetweenPages.
func (s *Server) updateBeforePage(page int) {
	s.mu.Lock()
	f := s.betweenPages
	s.mu.Unlock()
	if page > 1 && f != nil {
		s.Update(f)
	}
}

// snapshot returns the records, which must not be changed.
func (s *Server) snapshot() Records {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records
}
