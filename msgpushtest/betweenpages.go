package msgpushtest

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
)

// A betweenPages is the function of UpdateBetweenPages, and what has happened since a test set it.
type betweenPages struct {
	update func(*Records)        // or nil
	called bool                  // update was called
	served map[reflect.Type]bool // by the type of the records: a page of their list was requested
}

// UpdateBetweenPages sets a function that changes the server's records while a client reads a list,
// or none if f is nil. f is called, as by [Server.Update], before each response with a page, except
// before the first page of each list that is requested after this call. To iterate over a list again,
// call UpdateBetweenPages again. The test of [New] fails if f is never called, unless a nil
// replaces it. The test also fails, and the response is aborted, if f leaves records that are not
// valid.
func (s *Server) UpdateBetweenPages(f func(*Records)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil {
		s.misuses = append(s.misuses, s.unusedUpdate()...)
	}
	s.store.betweenPages = betweenPages{update: f, served: map[reflect.Type]bool{}}
}

// unusedUpdate returns an error text if the function of UpdateBetweenPages was never called. It is
// called with mu held.
func (s *Server) unusedUpdate() []string {
	state := s.store.betweenPages
	if state.update == nil || state.called {
		return nil
	}
	pages := "no page"
	if len(state.served) > 0 {
		pages = "only one page of each list"
	}
	return []string{fmt.Sprintf("the function of UpdateBetweenPages was never called, since %s was requested: "+
		"request a second page, or call UpdateBetweenPages(nil)", pages)}
}

// updateBeforePage calls the function of UpdateBetweenPages if a call is due before a page of records of a type.
func (s *Server) updateBeforePage(records reflect.Type) {
	update := s.dueUpdate(records)
	if update == nil {
		return
	}
	if err := s.update(update); err != nil {
		s.addMisuse("UpdateBetweenPages: " + strings.TrimPrefix(err.Error(), "msgpushtest: "))
		panic(http.ErrAbortHandler)
	}
}

// dueUpdate returns the function of UpdateBetweenPages, or nil if there is none, or if a page is the first
// one of its list.
func (s *Server) dueUpdate(records reflect.Type) func(*Records) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &s.store.betweenPages
	if state.update == nil {
		return nil
	}
	isFirst := !state.served[records]
	if isFirst {
		state.served[records] = true
		return nil
	}
	state.called = true
	return state.update
}
