package msgpushtest

import (
	"net/http"
	"strings"
)

// A betweenPages is the function of UpdateBetweenPages.
type betweenPages struct {
	update func(*Records) // or nil
	called bool
}

// UpdateBetweenPages sets a function that changes the server's records while a client reads a list, or none
// if f is nil. f is called, as by [Server.Update], before each response with another page than page 1, of any
// list. To change the records only between certain requests, call Update in [Server.OnRequest]. The test of
// [New] fails if f is never called, unless a nil replaces it. The test also fails, and the response is
// aborted, if f leaves records that are not valid.
func (s *Server) UpdateBetweenPages(f func(*Records)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil {
		s.misuses = append(s.misuses, s.unusedUpdate()...)
	}
	s.store.betweenPages = betweenPages{update: f}
}

// unusedUpdate returns an error text if the function of UpdateBetweenPages was never called. It is called
// with mu held.
func (s *Server) unusedUpdate() []string {
	state := s.store.betweenPages
	if state.update == nil || state.called {
		return nil
	}
	return []string{"the function of UpdateBetweenPages was never called, since no page behind page 1 was requested: " +
		"request a second page, or call UpdateBetweenPages(nil)"}
}

// updateBeforePage calls the function of UpdateBetweenPages, if there is one, before another page than page
// 1.
func (s *Server) updateBeforePage(number int) {
	s.mu.Lock()
	update := s.store.betweenPages.update
	isDue := update != nil && number > 1
	s.store.betweenPages.called = s.store.betweenPages.called || isDue
	s.mu.Unlock()
	if !isDue {
		return
	}
	if err := s.update(update); err != nil {
		s.addMisuse("UpdateBetweenPages: " + strings.TrimPrefix(err.Error(), "msgpushtest: "))
		panic(http.ErrAbortHandler)
	}
}
