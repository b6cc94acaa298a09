package msgpushtest

import (
	"encoding/json"

	"example.com/msgpush"
)

// A store holds the records of a server, and how they change.
type store struct {
	records      Records
	logs         []msgpush.ForwardLog            // of insert: the free elements, then records.ForwardLogs
	free         int                             // the number of free elements of logs
	filtered     map[string][]msgpush.ForwardLog // the records that a filter selects, by its JSON text
	betweenPages betweenPages
}

// Records returns a copy of the server's records.
func (s *Server) Records() Records {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.records.clone()
}

// SetRecords replaces the server's records with a copy of r. It panics if r is not valid, as
// [Records.Validate] reports.
func (s *Server) SetRecords(r Records) {
	s.updating <- struct{}{}
	defer func() { <-s.updating }()
	if err := s.replaceRecords(r.clone()); err != nil {
		panic(err.Error())
	}
}

// Update calls f to change the server's records, in one step. It panics if f leaves records that are not
// valid, as [Records.Validate] reports. If f or Update panics, the records do not change. The slices that f
// leaves in the records belong to the server: nothing may change them after f has returned.
//
// Updates do not overlap. f must not wait for another one, such as a call of Update or
// [Server.InsertForwardLog], or a page if a function of UpdateBetweenPages is set: it would wait forever.
// Update panics if f is nil.
func (s *Server) Update(f func(*Records)) {
	if f == nil {
		panic("msgpushtest: Update: the function is nil")
	}
	if err := s.update(f); err != nil {
		panic(err.Error())
	}
}

func (s *Server) update(f func(*Records)) error {
	s.updating <- struct{}{}
	defer func() { <-s.updating }()
	changed := s.Records()
	f(&changed)
	return s.replaceRecords(changed)
}

// replaceRecords replaces the records by valid ones. It is called with updating held.
func (s *Server) replaceRecords(r Records) error {
	if err := r.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.records, s.store.filtered = r, nil
	s.store.logs, s.store.free = nil, 0
	return nil
}

// InsertForwardLog inserts a trigger record at the start of the list, where the newest one stands. It takes
// less time than [Server.Update], which copies all records. It panics if the records are then not valid, as
// [Records.Validate] reports.
func (s *Server) InsertForwardLog(log msgpush.ForwardLog) {
	s.updating <- struct{}{}
	defer func() { <-s.updating }()
	if err := s.insertForwardLog(log); err != nil {
		panic(err.Error())
	}
}

// insertForwardLog is called with updating held.
func (s *Server) insertForwardLog(log msgpush.ForwardLog) error {
	added := Records{ForwardLogs: []msgpush.ForwardLog{log}}
	if err := added.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.store.records.ForwardLogs { // by index: the records are large, and a list can be long
		if s.store.records.ForwardLogs[i].ID == log.ID {
			return duplicateID("ForwardLogs", log.ID)
		}
	}
	s.store.insert(log)
	return nil
}

// insert inserts a trigger record. It copies the other records only if no element before them is free, since
// a list can be long.
func (s *store) insert(log msgpush.ForwardLog) {
	if s.free == 0 {
		old := s.records.ForwardLogs
		s.free = 16 + len(old)/4
		s.logs = make([]msgpush.ForwardLog, s.free+len(old))
		copy(s.logs[s.free:], old)
	}
	s.free--
	s.logs[s.free] = log
	s.records.ForwardLogs = s.logs[s.free:]
	s.filtered = nil
}

// matching returns the trigger records that want selects. It stores them until the next update, since an
// iteration requests many pages with the same filter. The result is valid while mu is held.
func (s *store) matching(want msgpush.ForwardLogParams) []msgpush.ForwardLog {
	if want == (msgpush.ForwardLogParams{}) {
		return s.records.ForwardLogs
	}
	text, _ := json.Marshal(want) // cannot fail: want has two numbers
	filter := string(text)
	logs, isStored := s.filtered[filter]
	if isStored {
		return logs
	}
	for _, log := range s.records.ForwardLogs {
		hasRule := want.RuleID == nil || log.RuleID == *want.RuleID
		hasResult := want.MatchResult == nil || log.MatchResult == *want.MatchResult
		if hasRule && hasResult {
			logs = append(logs, log)
		}
	}
	if s.filtered == nil {
		s.filtered = map[string][]msgpush.ForwardLog{}
	}
	s.filtered[filter] = logs
	return logs
}
