package msgpushtest

import (
	"fmt"
	"net/http"
	"strings"
)

// A betweenPages is the function of UpdateBetweenPages, and what has happened since a test set it.
type betweenPages struct {
	update     func(*Records) // or nil
	called     bool           // update was called
	servedPage bool           // a page was requested
}

// UpdateBetweenPages sets a function that changes the server's records while a client reads a list,
// or none if f is nil. f is called, as by [Server.Update], before each response with a page except
// the first. The test of [New] fails if f is never called, unless a nil replaces it. The test also
// fails, and the response is aborted, if f leaves records that are not valid.
func (s *Server) UpdateBetweenPages(f func(*Records)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil {
		s.misuses = append(s.misuses, s.unusedUpdate()...)
	}
	s.store.betweenPages = betweenPages{update: f}
}

// unusedUpdate returns an error text if the function of UpdateBetweenPages was never called. It is
// called with mu held.
func (s *Server) unusedUpdate() []string {
	state := s.store.betweenPages
	if state.update == nil || state.called {
		return nil
	}
	pages := "no page"
	if state.servedPage {
		pages = "only one page"
	}
	return []string{fmt.Sprintf("the function of UpdateBetweenPages was never called, since %s was requested: "+
		"request a second page, or call UpdateBetweenPages(nil)", pages)}
}

// updateBeforePage calls the function of UpdateBetweenPages if a call is due before a page.
func (s *Server) updateBeforePage() {
	update := s.dueUpdate()
	if update == nil {
		return
	}
	if err := s.update(update); err != nil {
		s.addMisuse("UpdateBetweenPages: " + strings.TrimPrefix(err.Error(), "msgpushtest: "))
		panic(http.ErrAbortHandler)
	}
}

// dueUpdate counts a page. It returns the function of UpdateBetweenPages if there is one, and if the
// page is not the first.
func (s *Server) dueUpdate() func(*Records) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &s.store.betweenPages
	if !state.servedPage {
		state.servedPage = true
		return nil
	}
	state.called = true
	return state.update
}
