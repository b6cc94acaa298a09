package msgpushtest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
)

// badRecordsKey is the key of the faults of BadRecord in the context of a request.
type badRecordsKey struct{}

// spoil uses the faults of BadRecord whose record is in the data of a response. It returns the
// changed data, and w with the statuses and the headers of the faults.
func (s *Server) spoil(w http.ResponseWriter, r *http.Request, data any) (http.ResponseWriter, any) {
	bad, _ := r.Context().Value(badRecordsKey{}).([]*queuedFault)
	if len(bad) == 0 || data == nil {
		return w, data
	}
	text, _ := json.Marshal(data)                       // cannot fail, as in respond
	changed, _ := decode(string(text)).(map[string]any) // a page or a record
	records := []any{changed}
	if list, ok := changed["list"].([]any); ok {
		records = list
	}
	for _, f := range bad {
		record := recordWithID(records, f.badRecord)
		if record != nil && s.use(f) {
			record[textOf(record)] = map[string]any{}
			w = &faultWriter{ResponseWriter: w, fault: f.Fault}
		}
	}
	return w, changed
}

// recordWithID returns a record of a list, or nil.
func recordWithID(records []any, id string) map[string]any {
	for _, record := range records {
		members, _ := record.(map[string]any)
		if members["id"] == json.Number(id) {
			return members
		}
	}
	return nil
}

// textOf returns the name of the first member of a record that is a text.
func textOf(record map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(record)) {
		if _, ok := record[name].(string); ok {
			return name
		}
	}
	return "" // does not happen: each record has a text
}
