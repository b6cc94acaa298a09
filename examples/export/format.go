package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"example.com/msgpush"
)

// A format is how records are written, and read from an unfinished file.
type format interface {
	encoder(io.Writer) encoder
	// read calls each for every record of a file, with at least the id, the
	// rule and the match result. It returns where the last of them ends: what
	// is behind that is a record that was torn off in the writing.
	read(f *os.File, each func(msgpush.ForwardLog) error) (whole int64, err error)
}

// An encoder writes records in a format. What it writes is buffered.
type encoder interface {
	header() error
	encode(msgpush.ForwardLog) error
	flush() error
}

// csvFormat is CSV with a header row. The columns are the members of a record
// in the document, under their names there.
type csvFormat struct{}

var columns = []string{
	"id", "ruleId", "ruleName", "sourceType", "sourceTypeName", "requestIp",
	"matchResult", "matchResultName", "shortCodes", "errorMessage", "createTime",
}

type csvEncoder struct{ *csv.Writer }

func (csvFormat) encoder(w io.Writer) encoder { return csvEncoder{csv.NewWriter(w)} }

func (e csvEncoder) header() error { return e.Write(columns) }

func (e csvEncoder) encode(r msgpush.ForwardLog) error {
	return e.Write([]string{
		strconv.FormatInt(r.ID, 10), strconv.FormatInt(r.RuleID, 10), r.RuleName,
		strconv.Itoa(r.SourceType), r.SourceTypeName, r.RequestIP,
		strconv.Itoa(r.MatchResult), r.MatchResultName, r.ShortCodes, r.ErrorMessage, string(r.CreateTime),
	})
}

func (e csvEncoder) flush() error {
	e.Flush()
	return e.Error()
}

func (csvFormat) read(f *os.File, each func(msgpush.ForwardLog) error) (whole int64, err error) {
	size, ended, err := end(f)
	if err != nil {
		return 0, err
	}
	rows := csv.NewReader(f)
	rows.FieldsPerRecord = len(columns)
	for {
		row, err := rows.Read()
		if err == io.EOF {
			return whole, nil
		}
		// A quote that is not closed makes one row of all that follows it, so
		// a record that was torn within a cell reaches the end too, even if
		// the cell has a line break there.
		var parseErr *csv.ParseError
		last := rows.InputOffset() == size
		if last && (errors.As(err, &parseErr) || err == nil && !ended) {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		if whole == 0 && !slices.Equal(row, columns) {
			return 0, errors.New("the first row is not the header of such a CSV file")
		}
		if whole > 0 {
			r, err := fromRow(row)
			if err != nil {
				return 0, err
			}
			if err := each(r); err != nil {
				return 0, err
			}
		}
		whole = rows.InputOffset()
	}
}

// fromRow returns the part of a record that says which it is.
func fromRow(row []string) (r msgpush.ForwardLog, err error) {
	if r.ID, err = strconv.ParseInt(row[0], 10, 64); err != nil {
		return r, err
	}
	if r.RuleID, err = strconv.ParseInt(row[1], 10, 64); err != nil {
		return r, err
	}
	r.MatchResult, err = strconv.Atoi(row[6])
	return r, err
}

// end returns the size of a file, and whether its last byte ends a line.
func end(f *os.File) (size int64, ended bool, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return info.Size(), last[0] == '\n', err
}

// jsonlFormat is one JSON object a line, with the members of a record in the
// document.
type jsonlFormat struct{}

type jsonlEncoder struct {
	buffer *bufio.Writer
	*json.Encoder
}

func (jsonlFormat) encoder(w io.Writer) encoder {
	buffer := bufio.NewWriter(w)
	e := jsonlEncoder{buffer, json.NewEncoder(buffer)}
	e.SetEscapeHTML(false) // a > in the name of a rule is to be read as one
	return e
}

func (e jsonlEncoder) header() error                     { return nil }
func (e jsonlEncoder) encode(r msgpush.ForwardLog) error { return e.Encode(r) }
func (e jsonlEncoder) flush() error                      { return e.buffer.Flush() }

func (jsonlFormat) read(f *os.File, each func(msgpush.ForwardLog) error) (whole int64, err error) {
	in := bufio.NewReader(f)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		var r msgpush.ForwardLog
		if err := json.Unmarshal(line, &r); err != nil {
			return 0, fmt.Errorf("line %d is not a record as JSON: %w", number, err)
		}
		if err := each(r); err != nil {
			return 0, err
		}
		whole += int64(len(line))
	}
}
