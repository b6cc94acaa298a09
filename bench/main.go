// Bench compares msgpush with other clients: the same calls with the same response
// bytes, in one run. It prints tables in Markdown and plots iteration time and
// growth.
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
		duration:       100 * time.Millisecond,
		calls:          16_000,
		iterationPages: 200,
		delay:          20 * time.Millisecond,
		memoryPages:    1000,
		growthPages:    []int{1, 10, 100, 1000},
	}
	flag.IntVar(&t.rounds, "rounds", 10, "number of measurement rounds")
	dir := flag.String("o", ".", "the `directory` for iteration.svg and growth.svg")
	readme := flag.String("readme", "", "replace the tables in this Markdown `file`")
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
	if err := plotIteration(s.iteration, filepath.Join(dir, "iteration.svg")); err != nil {
		return err
	}
	if err := plotGrowth(s.growth, t.growthPages, filepath.Join(dir, "growth.svg")); err != nil {
		return err
	}
	if readme == "" {
		return nil
	}
	return replaceTables(readme, tables.String())
}

// The lines before and after the tables in a README.
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
		return fmt.Errorf("%s must contain the lines %q and %q, in this order", file, tablesBegin, tablesEnd)
	}
	return os.WriteFile(file, []byte(before+tablesBegin+tables+tablesEnd+after), 0o666)
}
