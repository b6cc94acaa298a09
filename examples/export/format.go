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

var formats = map[string]format{"csv": csvFormat{}, "jsonl": jsonlFormat{}}

// A format encodes records, and reads them from FILE.part.
type format interface {
	encoder(io.Writer) encoder
	// read passes every record of a file to each. At least the id, the rule and the match result of
	// the record are set. read returns the offset where the last complete record ends. An
	// incomplete record may follow.
	read(f *os.File, each func(msgpush.ForwardLog) error) (complete int64, err error)
}

// An encoder writes records to a buffer.
type encoder interface {
	header() error
	encode(msgpush.ForwardLog) error
	flush() error
}

// csvFormat is CSV with a header row. The columns are named as in the API document.
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

func (csvFormat) read(f *os.File, each func(msgpush.ForwardLog) error) (complete int64, err error) {
	size, hasNewline, err := fileEnd(f)
	if err != nil {
		return 0, err
	}
	rows := csv.NewReader(f)
	rows.FieldsPerRecord = len(columns)
	for {
		row, err := rows.Read()
		if err == io.EOF {
			return complete, nil
		}
		// The last row is incomplete if it has an error or no newline: an open quote extends it to
		// the end of the file.
		var parseErr *csv.ParseError
		last := rows.InputOffset() == size
		if last && (errors.As(err, &parseErr) || err == nil && !hasNewline) {
			return complete, nil
		}
		if err != nil {
			return 0, err
		}
		if complete == 0 && !slices.Equal(row, columns) {
			return 0, errors.New("the first row is not the header that export writes")
		}
		if complete > 0 {
			r, err := fromRow(row)
			if err != nil {
				return 0, err
			}
			if err := each(r); err != nil {
				return 0, err
			}
		}
		complete = rows.InputOffset()
	}
}

// fromRow returns the id, the rule and the match result of a record.
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

// fileEnd returns the size of a file and reports whether it ends with a newline.
func fileEnd(f *os.File) (size int64, hasNewline bool, err error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return info.Size(), last[0] == '\n', err
}

// jsonlFormat is one JSON object per line, with the members of the API document.
type jsonlFormat struct{}

type jsonlEncoder struct {
	buffer *bufio.Writer
	*json.Encoder
}

func (jsonlFormat) encoder(w io.Writer) encoder {
	buffer := bufio.NewWriter(w)
	e := jsonlEncoder{buffer, json.NewEncoder(buffer)}
	e.SetEscapeHTML(false) // keeps a > in the name of a rule readable
	return e
}

func (e jsonlEncoder) header() error                     { return nil }
func (e jsonlEncoder) encode(r msgpush.ForwardLog) error { return e.Encode(r) }
func (e jsonlEncoder) flush() error                      { return e.buffer.Flush() }

func (jsonlFormat) read(f *os.File, each func(msgpush.ForwardLog) error) (complete int64, err error) {
	in := bufio.NewReader(f)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return complete, nil
		}
		if err != nil {
			return 0, err
		}
		var r msgpush.ForwardLog
		if err := json.Unmarshal(line, &r); err != nil {
			return 0, fmt.Errorf("line %d is not a record in JSON: %w", number, err)
		}
		if err := each(r); err != nil {
			return 0, err
		}
		complete += int64(len(line))
	}
}
