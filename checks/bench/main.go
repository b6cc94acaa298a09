// Bench compares msgpush with other clients: the same calls with the same response
// bytes, in one run. It prints tables in Markdown and plots iteration time and
// growth.
package main

import (
	"bytes"
	"flag"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	cfg := config{
		duration:       100 * time.Millisecond,
		calls:          64_000,
		iterationPages: 200,
		delay:          20 * time.Millisecond,
		followPages:    100,
		idlePolls:      1000,
		memoryPages:    1000,
		growthPages:    []int{1, 10, 100, 1000},
	}
	flag.IntVar(&cfg.rounds, "rounds", 10, "number of measurement rounds")
	dir := flag.String("o", ".", "the `directory` for iteration.svg and growth.svg")
	flag.Parse()
	if cfg.rounds < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(cfg, *dir, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(cfg config, dir string, out io.Writer) error {
	s, err := newSuite(cfg)
	if err != nil {
		return err
	}
	for round := range cfg.rounds {
		for _, e := range s.experiments() {
			log.Printf("round %d of %d: %s", round+1, cfg.rounds, e.title)
			if err := e.round(round); err != nil {
				return err
			}
		}
	}
	var tables bytes.Buffer
	s.print(&tables)
	if _, err := tables.WriteTo(out); err != nil {
		return err
	}
	if err := plotIteration(s.iteration, filepath.Join(dir, "iteration.svg")); err != nil {
		return err
	}
	return plotGrowth(s.growth, cfg.growthPages, filepath.Join(dir, "growth.svg"))
}
