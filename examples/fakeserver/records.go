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
	"strings"
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

// decodeRecords decodes records from JSON. A field that Records or a record does not have is an error, since
// it is probably misspelled.
func decodeRecords(r io.Reader) (records msgpushtest.Records, err error) {
	if err := decodeStrictly(r, &records); err != nil {
		return records, err
	}
	return records, validate(records)
}

// validate returns the error of Validate without the name of the package.
func validate(records msgpushtest.Records) error {
	err := records.Validate()
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), "msgpushtest: "))
}

// decodeStrictly decodes one JSON value that has only members of a struct.
func decodeStrictly(r io.Reader, to any) error {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return describe(err)
	}
	_, err := decoder.Token()
	if !errors.Is(err, io.EOF) {
		return errors.New("expected the end after the JSON object")
	}
	return nil
}

// describe returns an error of encoding/json for readers who do not know the types of Go.
func describe(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("expected a JSON object, found nothing")
	}
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	expected := "an integer"
	switch typeErr.Type.Kind() {
	case reflect.Struct:
		expected = "an object"
	case reflect.Slice:
		expected = "an array"
	case reflect.String:
		expected = "a string"
	}
	text := "expected " + expected + ", found " + typeErr.Value
	if typeErr.Field != "" {
		text = typeErr.Field + ": " + text
	}
	return errors.New(text)
}

// addRecords adds trigger records at the front of their list, which begins with the newest one, and other
// records at the end of theirs. It returns an error, and adds none, if the records are then not valid.
func addRecords(fake *msgpushtest.Server, added msgpushtest.Records) (err error) {
	fake.Update(func(r *msgpushtest.Records) {
		changed := *r
		for field, records := range reflect.ValueOf(added).Fields() {
			if records.Kind() != reflect.Slice {
				continue
			}
			list := reflect.ValueOf(&changed).Elem().FieldByName(field.Name)
			list.Set(reflect.AppendSlice(list, records))
		}
		changed.ForwardLogs = slices.Concat(added.ForwardLogs, r.ForwardLogs)
		err = validate(changed)
		if err == nil {
			*r = changed
		}
	})
	return err
}

// insertRecords inserts a trigger record each interval until ctx ends. The records repeat the first records
// of the server, or the sample records if it had none.
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

// nextRecord returns a copy of a record with a new id. Its time is the present or, if the list has a record
// of the future, a second later than that one: to a program that follows the list, an earlier record is not
// new.
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
