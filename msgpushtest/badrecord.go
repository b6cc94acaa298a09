package msgpushtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// BadRecord returns a fault that changes one record of the usual response: a text of the record with the id
// becomes a JSON object, so that the record cannot be decoded. A response without the record does not use the
// fault.
func BadRecord(id int64) Fault {
	return Fault{kind: fmt.Sprintf("BadRecord(%d)", id), badRecord: strconv.FormatInt(id, 10)}
}

// useBadRecords changes the records of faults of BadRecord in the data of a response. It returns the data,
// and the faults whose record is in it.
func (s *Server) useBadRecords(faults []*queuedFault, data any) (changed any, used []Fault) {
	if len(faults) == 0 || data == nil {
		return data, nil
	}
	text, _ := json.Marshal(data) // cannot fail, as in respond
	pageOrRecord, _ := decode(string(text)).(map[string]any)
	records := []any{pageOrRecord}
	if list, ok := pageOrRecord["list"].([]any); ok {
		records = list
	}
	for _, f := range faults {
		record := recordWithID(records, f.badRecord)
		if record != nil && s.use(f) {
			record[textOf(record)] = map[string]any{}
			used = append(used, f.Fault)
		}
	}
	return pageOrRecord, used
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
