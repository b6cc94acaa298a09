package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"

	"example.com/msgpush"
)

// toStdout writes the records to standard output.
func (s *settings) toStdout(ctx context.Context, client *msgpush.Client, stdout, stderr *os.File) error {
	out := s.format.encoder(stdout)
	bar := newProgress(stderr)
	if term.IsTerminal(int(stdout.Fd())) {
		out = cleaned{out}
		bar = newProgress(nil) // which would be in the way of the records
	}
	if err := out.header(); err != nil {
		return err
	}
	_, err := s.walk(ctx, client, out, nil, bar)
	return err
}

// toFile writes the records to a file beside the one that was asked for, and
// gives it its name when it is whole.
func (s *settings) toFile(ctx context.Context, client *msgpush.Client, stderr *os.File) error {
	// To see at the end that the name is that of a directory would be late.
	if info, err := os.Lstat(s.file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", s.file)
	}
	name := s.file + ".part"
	part, err := s.openPart(name)
	if err != nil {
		return err
	}
	defer part.Close()
	present, err := s.present(part)
	if err != nil {
		return fmt.Errorf("%s: %w; remove it to begin anew", name, err)
	}
	kept := len(present)
	added, err := s.fill(ctx, client, part, present, newProgress(stderr))
	if err != nil && kept+added == 0 {
		_ = part.Close()
		_ = os.Remove(name) // there is nothing to go on with
		return err
	}
	if err != nil {
		return fmt.Errorf("%w; what there is is in %s: -resume goes on with it", err, name)
	}
	if err := os.Rename(name, s.file); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%d records in %s", kept+added, s.file)
	if s.resume {
		fmt.Fprintf(stderr, ", %d of them new", added)
	}
	fmt.Fprintln(stderr)
	return nil
}

// openPart opens the unfinished file.
func (s *settings) openPart(name string) (*os.File, error) {
	if s.resume {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	}
	part, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s is there, from a run that did not end or still runs: go on with it by -resume, or remove it", name)
	}
	return part, err
}

// present returns the ids of the records that an unfinished file has. It cuts
// off a torn record at its end, and leaves the file ready to be written on.
func (s *settings) present(part *os.File) (map[int64]struct{}, error) {
	ids := make(map[int64]struct{})
	whole, err := s.format.read(part, func(r msgpush.ForwardLog) error {
		// The flags say what the file is to have in the end, so what it has
		// now must be of that kind.
		if rule := s.params.RuleID; rule != nil && *rule != r.RuleID {
			return fmt.Errorf("record %d has the rule %d, so this was not begun with -rule %d", r.ID, r.RuleID, *rule)
		}
		if result := s.params.MatchResult; result != nil && *result != r.MatchResult {
			return fmt.Errorf("record %d has the match result %d, so this was not begun with -match-result %d", r.ID, r.MatchResult, *result)
		}
		ids[r.ID] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := part.Truncate(whole); err != nil {
		return nil, err
	}
	_, err = part.Seek(whole, io.SeekStart)
	return ids, err
}

// fill adds the records to an unfinished file that it has not got yet, and
// closes it. It returns how many it has added.
func (s *settings) fill(ctx context.Context, client *msgpush.Client, part *os.File, present map[int64]struct{}, bar *progress) (added int, err error) {
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
	if added, err = s.walk(ctx, client, out, present, bar); err != nil {
		return added, err
	}
	if err := part.Sync(); err != nil {
		return added, err
	}
	return added, part.Close()
}

// walk writes the records that are not present yet, page by page, and returns
// how many there were.
func (s *settings) walk(ctx context.Context, client *msgpush.Client, out encoder, present map[int64]struct{}, bar *progress) (added int, err error) {
	defer bar.clear()
	request := msgpush.ForwardLogRequest{
		PageRequest: msgpush.PageRequest{PageSize: s.pageSize},
		Params:      s.params,
	}
	for page, err := range client.ForwardLogPages(ctx, request, msgpush.Prefetch(s.prefetch)) {
		if ctx.Err() != nil {
			return added, errors.New("interrupted")
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
		// What is flushed outlives a program that is killed.
		if err := out.flush(); err != nil {
			return added, err
		}
		bar.add(len(page.List), page.Total)
	}
	return added, out.flush()
}

// cleaned takes out of the records what could steer the terminal to which they
// are written.
type cleaned struct{ encoder }

func (c cleaned) encode(r msgpush.ForwardLog) error {
	for _, s := range []*string{&r.RuleName, &r.SourceTypeName, &r.RequestIP, &r.MatchResultName, &r.ShortCodes, &r.ErrorMessage, (*string)(&r.CreateTime)} {
		*s = clean(*s)
	}
	return c.encoder.encode(r)
}

// clean takes out what could break a line, or steer the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
