package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// readRecords reads the records of a file, or returns the sample records if name is empty.
func readRecords(name string) (msgpushtest.Records, error) {
	if name == "" {
		return msgpushtest.SampleRecords(), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return msgpushtest.Records{}, err
	}
	defer file.Close()
	records, err := decodeRecords(file)
	if err != nil {
		return records, fmt.Errorf("%s: %w", name, err)
	}
	return records, nil
}

// decodeRecords decodes records from JSON. A field that Records or a record does not have is an
// error, since it is probably misspelled.
func decodeRecords(r io.Reader) (records msgpushtest.Records, err error) {
	if err := decodeStrictly(r, &records); err != nil {
		return records, err
	}
	return records, records.Validate()
}

// decodeStrictly decodes one JSON value that has only members of a struct.
func decodeStrictly(r io.Reader, to any) error {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return err
	}
	_, err := decoder.Token()
	if !errors.Is(err, io.EOF) {
		return errors.New("expected the end after the JSON object")
	}
	return nil
}

// addRecords adds trigger records at the front of their list, which begins with the newest one, and
// other records at the end of theirs. It returns an error if a list has an id already: clients drop
// records that repeat an id.
func addRecords(fake *msgpushtest.Server, added msgpushtest.Records) (err error) {
	fake.Update(func(r *msgpushtest.Records) {
		changed := *r
		for field, records := range reflect.ValueOf(added).Fields() {
			if records.Kind() != reflect.Slice {
				continue
			}
			list := reflect.ValueOf(&changed).Elem().FieldByName(field.Name)
			err = errors.Join(err, checkIDs(field.Name, list, records))
			list.Set(reflect.AppendSlice(list, records))
		}
		changed.ForwardLogs = slices.Concat(added.ForwardLogs, r.ForwardLogs)
		if err == nil {
			*r = changed
		}
	})
	return err
}

// checkIDs returns an error if one of two slices of records has an id of the other, or if added has
// an id twice.
func checkIDs(list string, records, added reflect.Value) error {
	ids := map[int64]bool{}
	for _, record := range records.Seq2() {
		ids[record.FieldByName("ID").Int()] = true
	}
	for _, record := range added.Seq2() {
		id := record.FieldByName("ID").Int()
		if ids[id] {
			return fmt.Errorf("%s has a record with the id %d already", list, id)
		}
		ids[id] = true
	}
	return nil
}

// insertRecords inserts a trigger record each interval until ctx ends. The records repeat the
// first records of the server, or the sample records if it had none.
func insertRecords(ctx context.Context, fake *msgpushtest.Server, interval time.Duration) {
	models := fake.Records().ForwardLogs
	if len(models) == 0 {
		models = msgpushtest.SampleRecords().ForwardLogs
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			fake.Update(func(r *msgpushtest.Records) {
				next := nextRecord(r.ForwardLogs, models[n%len(models)], now.UTC())
				r.ForwardLogs = slices.Insert(r.ForwardLogs, 0, next)
			})
		}
	}
}

// nextRecord returns a copy of a record with a new id. Its time is the present or, if the list has a
// record of the future, a second later than that one: to a program that follows the list, an earlier
// record is not new.
func nextRecord(list []msgpush.ForwardLog, next msgpush.ForwardLog, now time.Time) msgpush.ForwardLog {
	next.ID = 0
	for _, record := range list {
		next.ID = max(next.ID, record.ID)
		created, err := record.CreateTime.Time(time.UTC)
		if err == nil && created.After(now) {
			now = created.Add(time.Second)
		}
	}
	next.ID++
	next.CreateTime = msgpush.DateTime(now.Format(time.DateTime))
	return next
}
