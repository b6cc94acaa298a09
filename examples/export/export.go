package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/cli"
)

func (s *settings) toStdout(ctx context.Context, client *msgpush.Client) error {
	out := s.format.encoder(os.Stdout)
	bar := newProgressBar(os.Stderr)
	if term.IsTerminal(int(os.Stdout.Fd())) {
		out = printableEncoder{out}
		bar = newProgressBar(nil) // a bar would overwrite records
	}
	if err := out.header(); err != nil {
		return err
	}
	_, err := s.copyRecords(ctx, client, out, nil, bar)
	return err
}

// toFile writes the records to FILE.part and renames it to FILE when it is complete.
func (s *settings) toFile(ctx context.Context, client *msgpush.Client) error {
	// Checked before the records are read, since the rename at the end would fail for a directory,
	// and replace a link or a device.
	if info, err := os.Lstat(s.file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", s.file)
	}
	name := s.file + ".part"
	part, err := s.openPart(name)
	if err != nil {
		return err
	}
	defer part.Close()
	present, err := s.readPart(part)
	if err != nil {
		return fmt.Errorf("%s: %w; remove it to start from the beginning", name, err)
	}
	kept := len(present)
	added, err := s.fillPart(ctx, client, part, present)
	if err != nil && kept+added == 0 {
		_ = part.Close()
		_ = os.Remove(name) // it contains no record
		return err
	}
	if err != nil {
		return fmt.Errorf("%w; partial output is kept in %s: use -resume to continue", err, name)
	}
	if err := os.Rename(name, s.file); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d records in %s", kept+added, s.file)
	if s.resume {
		fmt.Fprintf(os.Stderr, ", %d of them new", added)
	}
	fmt.Fprintln(os.Stderr)
	return nil
}

func (s *settings) openPart(name string) (*os.File, error) {
	if s.resume {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	}
	part, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s exists: another run is writing it or did not complete it; "+
			"use -resume to continue, or remove it", name)
	}
	return part, err
}

// readPart returns the ids of the records in FILE.part. It removes an incomplete record at the end
// and sets the offset to the end.
func (s *settings) readPart(part *os.File) (map[int64]struct{}, error) {
	ids := make(map[int64]struct{})
	complete, err := s.format.read(part, func(r msgpush.ForwardLog) error {
		if rule := s.params.RuleID; rule != nil && *rule != r.RuleID {
			return fmt.Errorf("record %d has rule %d, so the file was not started with -rule %d", r.ID, r.RuleID, *rule)
		}
		if result := s.params.MatchResult; result != nil && *result != r.MatchResult {
			const format = "record %d has match result %d, so the file was not started with -match-result %d"
			return fmt.Errorf(format, r.ID, r.MatchResult, *result)
		}
		ids[r.ID] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := part.Truncate(complete); err != nil {
		return nil, err
	}
	_, err = part.Seek(complete, io.SeekStart)
	return ids, err
}

// fillPart adds the missing records to FILE.part and, if that succeeds, closes it. It returns the
// number of records added.
func (s *settings) fillPart(
	ctx context.Context,
	client *msgpush.Client,
	part *os.File,
	present map[int64]struct{},
) (added int, err error) {
	out := s.format.encoder(part)
	end, err := part.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if end == 0 {
		if err := out.header(); err != nil {
			return 0, err
		}
	}
	if added, err = s.copyRecords(ctx, client, out, present, newProgressBar(os.Stderr)); err != nil {
		return added, err
	}
	if err := part.Sync(); err != nil {
		return added, err
	}
	return added, part.Close()
}

// copyRecords writes the records that are not present yet and returns their number.
func (s *settings) copyRecords(
	ctx context.Context,
	client *msgpush.Client,
	out encoder,
	present map[int64]struct{},
	bar *progressBar,
) (added int, err error) {
	defer bar.clear()
	records := client.ForwardLogs(s.params)
	records.PageSize, records.Prefetch = s.pageSize, s.prefetch
	for page, err := range records.Pages(ctx) {
		if ctx.Err() != nil {
			return added, cli.ErrInterrupted
		}
		if err != nil {
			return added, err
		}
		for _, record := range page.List {
			if _, ok := present[record.ID]; ok {
				continue
			}
			if err := out.encode(record); err != nil {
				return added, err
			}
			added++
		}
		// Flushed records are kept even if the program is killed.
		if err := out.flush(); err != nil {
			return added, err
		}
		bar.add(len(page.List), page.Total)
	}
	return added, out.flush()
}

// A printableEncoder replaces characters in records that could control a terminal.
type printableEncoder struct{ encoder }

func (e printableEncoder) encode(r msgpush.ForwardLog) error {
	texts := []*string{
		&r.RuleName,
		&r.SourceTypeName,
		&r.RequestIP,
		&r.MatchResultName,
		&r.ShortCodes,
		&r.ErrorMessage,
		(*string)(&r.CreateTime),
	}
	for _, s := range texts {
		*s = cli.Printable(*s)
	}
	return e.encoder.encode(r)
}
