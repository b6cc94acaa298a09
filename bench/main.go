// Bench shows msgpush beside what else its users could call the service with:
// the same calls, on the same bytes, in one run. It prints its tables in
// Markdown, and draws a plot of the walks and one of their growth.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	t := times{
		duration: 100 * time.Millisecond,
		calls:    16_000,
		walked:   200,
		delay:    20 * time.Millisecond,
		million:  1000,
		growth:   []int{1, 10, 100, 1000},
	}
	flag.IntVar(&t.rounds, "rounds", 10, "how often everything is measured")
	dir := flag.String("o", ".", "the `directory` for walk.svg and growth.svg")
	readme := flag.String("readme", "", "a `file` in which the tables replace those that are there")
	flag.Parse()
	if t.rounds < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(t, *dir, *readme, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(t times, dir, readme string, out io.Writer) error {
	s, err := newSuite(t)
	if err != nil {
		return err
	}
	for round := range t.rounds {
		for _, e := range s.experiments() {
			log.Printf("round %d of %d: %s", round+1, t.rounds, e.title)
			if err := e.round(round); err != nil {
				return err
			}
		}
	}
	var tables strings.Builder
	s.print(&tables)
	if _, err := io.WriteString(out, tables.String()); err != nil {
		return err
	}
	if err := plotWalks(s.walks, filepath.Join(dir, "walk.svg")); err != nil {
		return err
	}
	if err := plotGrowth(s.growth, t.growth, filepath.Join(dir, "growth.svg")); err != nil {
		return err
	}
	if readme == "" {
		return nil
	}
	return replaceTables(readme, tables.String())
}

// The lines of a README between which the tables are.
const (
	tablesBegin = "<!-- tables: begin -->\n"
	tablesEnd   = "<!-- tables: end -->\n"
)

func replaceTables(file, tables string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tablesBegin)
	_, after, ends := strings.Cut(rest, tablesEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the tables: lines %q and %q", file, tablesBegin, tablesEnd)
	}
	return os.WriteFile(file, []byte(before+tablesBegin+tables+tablesEnd+after), 0o666)
}
