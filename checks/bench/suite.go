package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

type suite struct {
	rounds     int
	cpu        []*experiment // by workload
	noDeadline *experiment   // CPU without a deadline
	one, many  []*experiment // callers over loopback, by workload
	goaway     *experiment
	iteration  *experiment
	follow     *experiment
	memory     *experiment
	growth     []*experiment // by number of pages
}

const manyCallers = 64

func newSuite(cfg config) (*suite, error) {
	s := &suite{rounds: cfg.rounds}
	noDeadline, err := cpu(withoutDeadline, cfg)
	if err != nil {
		return nil, err
	}
	s.noDeadline = noDeadline
	for _, w := range workloads {
		cpu, err := cpu(w, cfg)
		if err != nil {
			return nil, err
		}
		one, err := loopback(w, 1, cfg)
		if err != nil {
			return nil, err
		}
		many, err := loopback(w, manyCallers, cfg)
		if err != nil {
			return nil, err
		}
		s.cpu, s.one, s.many = append(s.cpu, cpu), append(s.one, one), append(s.many, many)
	}
	for _, pages := range cfg.growthPages {
		e, err := growth(pages, cfg)
		if err != nil {
			return nil, err
		}
		s.growth = append(s.growth, e)
	}
	if s.goaway, err = goaway(cfg); err != nil {
		return nil, err
	}
	if s.iteration, err = iteration(cfg); err != nil {
		return nil, err
	}
	if s.follow, err = following(cfg); err != nil {
		return nil, err
	}
	s.memory, err = memory(cfg)
	return s, err
}

func (s *suite) experiments() []*experiment {
	var all []*experiment
	all = append(all, s.cpu...)
	all = append(all, s.noDeadline)
	all = append(all, s.one...)
	all = append(all, s.many...)
	all = append(all, s.goaway, s.iteration, s.follow, s.memory)
	return append(all, s.growth...)
}

func (s *suite) print(w io.Writer) {
	fmt.Fprintf(w, "# Measurements with %s\n\n", strings.Replace(runtime.Version(), "go", "Go ", 1))
	fmt.Fprintf(w, "%s, %d rounds, %s\n\n", time.Now().Format(time.DateOnly), s.rounds, machine())
	fmt.Fprintf(w, "%s\n\n", versions())
	s.printGoals(w)
	for _, e := range s.experiments() {
		e.print(w)
	}
}

// machine describes the CPU and the platform.
func machine() string {
	cpu := "unknown CPU"
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d CPUs (%s), %s/%s", runtime.GOMAXPROCS(0), cpu, runtime.GOOS, runtime.GOARCH)
}

// versions lists the versions of the compared modules.
func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "versions unknown"
	}
	var list []string
	for _, m := range info.Deps {
		for _, path := range []string{
			"/godo", "/hcloud-go/v2", "/client-go", "/go-github/v89", "/resty/v2", "bytedance/sonic", "goccy/go-json",
		} {
			if strings.HasSuffix(m.Path, path) {
				list = append(list, m.Path+" "+m.Version)
			}
		}
	}
	return strings.Join(list, ", ")
}
