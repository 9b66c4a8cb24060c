package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"parley/cmd/internal/guide"
	"parley/cmd/parley/bench"
)

// command is the command line.
type command struct {
	Rounds    int           `default:"5" help:"Rounds. Some rows have fewer, because their figures hardly change. 0: no table."`
	Duration  time.Duration `default:"3s" help:"Measured time of a short row; others take twice or half as long."`
	Only      []string      `placeholder:"ROW,..." help:"Measure only these rows."`
	Skip      []string      `placeholder:"ROW,..." help:"Do not measure these rows."`
	Stores    []string      `default:"embedded,redis" enum:"embedded,redis" help:"Stores of the servers: embedded, redis."`
	NoPipe    bool          `help:"Do not measure the bare pipe."`
	Cores     string        `default:"auto" help:"Cores for taskset, as SERVER/CLIENT, for example 0/1; none for any core. Default: 0/1 if there are two cores."`
	Binary    string        `placeholder:"FILE" help:"The server under test. Default: built from this checkout."`
	Baseline  string        `placeholder:"FILE" help:"The server of another version, measured in the same rounds."`
	Growth    string        `placeholder:"FOLDER" help:"Also measure what grows, and write the plots into this folder."`
	Cold      bool          `help:"Also measure a build without Go's cache (minutes)."`
	Dir       string        `placeholder:"FOLDER" help:"Folder of the stores; its disk matters for fdatasync. Default: the folder for temporary files."`
	Into      string        `placeholder:"FILE" help:"Write the table into this guide, between its two markers. Default: print it."`
	Benchstat string        `placeholder:"FOLDER" help:"Write files for benchstat into this folder."`
	Raw       string        `placeholder:"FILE" help:"Write all reports as JSON."`
	List      bool          `help:"Print the rows and stop."`
}

const description = `Measure servers side by side, and print a table. A measurement with a failed turn is repeated once.`

func main() {
	var c command
	kong.Parse(&c, kong.Name("bench"), kong.Description(description))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the rows, and writes the table and the other files.
func (c *command) run(ctx context.Context, out, errs io.Writer) error {
	chosen, err := c.choose()
	if err != nil {
		return err
	}
	if c.List {
		for _, r := range chosen {
			fmt.Fprintf(out, "%-22s %s\n", r.name, r.figures[0].name)
		}
		return nil
	}
	if c.Into != "" && len(c.Only)+len(c.Skip) > 0 {
		return errors.New("--into needs all rows: leave out --only and --skip")
	}
	l, subjects, err := c.prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	begun := time.Now()
	all, err := c.measureRows(ctx, l, subjects, chosen, errs)
	if err != nil {
		return err
	}
	var cold time.Duration
	if c.Cold {
		if cold, err = l.coldBuild(errs); err != nil {
			return err
		}
	}
	if err := c.write(out, begun, all, l, subjects, cold); err != nil || c.Growth == "" {
		return err
	}
	return c.measureGrowth(ctx, l, subjects, errs)
}

// choose returns the rows that the flags select.
func (c *command) choose() (chosen []*row, err error) {
	known := func(name string) bool {
		return slices.ContainsFunc(rows(), func(r *row) bool { return r.name == name })
	}
	for _, name := range append(slices.Clone(c.Only), c.Skip...) {
		if !known(name) {
			return nil, fmt.Errorf("unknown row %q; --list prints the rows", name)
		}
	}
	for _, r := range rows() {
		if (len(c.Only) == 0 || slices.Contains(c.Only, r.name)) && !slices.Contains(c.Skip, r.name) {
			chosen = append(chosen, r)
		}
	}
	return chosen, nil
}

// pipeName is the name of the bare pipe's column. baselineSuffix ends the names of the baseline's columns.
const (
	pipeName       = "bare pipe"
	baselineSuffix = " (baseline)"
)

// storeNames are the headings of the columns by store.
var storeNames = map[string]string{"": "pipe", "embedded": "embedded", "redis": "on Redis"}

func (s subject) storeName() string { return strings.ReplaceAll(storeNames[s.store], " ", "_") }

// baselineOf returns the column of the baseline with which a subject is compared; "" for none.
func baselineOf(s subject) string {
	if s.store == "" || s.label != "branch" {
		return ""
	}
	return storeNames[s.store] + baselineSuffix
}

// prepare builds the binary, and returns the lab and the subjects.
func (c *command) prepare() (l *lab, subjects []subject, err error) {
	l = &lab{}
	if l.serverCores, l.clientCores, err = c.coreLists(); err != nil {
		return nil, nil, err
	}
	if l.dir, err = os.MkdirTemp(c.Dir, "parley-bench-"); err != nil {
		return nil, nil, err
	}
	if l.tool, err = build(l.dir); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(l.dir))
	}
	binary := l.tool
	if c.Binary != "" {
		if binary, err = filepath.Abs(c.Binary); err != nil {
			return nil, nil, err
		}
	}
	if !c.NoPipe {
		subjects = append(subjects, subject{pipeName, "", l.tool, "pipe"})
	}
	for _, store := range c.Stores {
		if c.Baseline != "" {
			baseline, err := filepath.Abs(c.Baseline)
			if err != nil {
				return nil, nil, err
			}
			subjects = append(subjects, subject{storeNames[store] + baselineSuffix, store, baseline, "baseline"})
		}
		subjects = append(subjects, subject{storeNames[store], store, binary, "branch"})
	}
	return l, subjects, nil
}

// coreLists returns the cores of the server and of the client; "" for any.
func (c *command) coreLists() (server, client string, err error) {
	switch {
	case c.Cores == "none" || c.Cores == "auto" && runtime.NumCPU() < 2:
		return "", "", nil
	case c.Cores == "auto":
		server, client = "0", "1"
	default:
		var ok bool
		if server, client, ok = strings.Cut(c.Cores, "/"); !ok {
			return "", "", fmt.Errorf("--cores: invalid value %q: use SERVER/CLIENT, for example 0/1", c.Cores)
		}
	}
	return server, client, checkCores(server, client)
}

// measureRows runs the rounds. In each round, all rows are measured with all their subjects.
func (c *command) measureRows(ctx context.Context, l *lab, subjects []subject, chosen []*row, errs io.Writer) (all []*results, err error) {
	for _, r := range chosen {
		all = append(all, &results{row: r, subjects: subjects})
	}
	for round := range c.Rounds {
		for _, r := range all {
			if r.row.rounds > 0 && round >= r.row.rounds {
				continue
			}
			for _, s := range subjects {
				if s.store == "" && !r.row.pipe || s.store != "" && r.row.only != "" && s.store != r.row.only {
					continue
				}
				fmt.Fprintf(errs, "%s  round %d of %d, %s, %s\n", time.Now().Format(time.TimeOnly), round+1, c.Rounds, r.row.name, s.name)
				m := &measured{Report: &bench.Report{}}
				if m.Start, err = l.measure(ctx, s, max(1, r.row.cores), errs, r.row.arguments(c.Duration), m.Report); err != nil {
					return nil, err
				}
				if s.store == "" {
					m.Start = 0 // the pipe runs in the binary parley, so its size says nothing about a bare pipe
				}
				if m.LateSessions > 0 {
					fmt.Fprintf(errs, "          %d sessions were created under load\n", m.LateSessions)
				}
				r.add(round, s.name, m)
			}
		}
	}
	return all, nil
}

// write writes the table and the other files.
func (c *command) write(out io.Writer, begun time.Time, all []*results, l *lab, subjects []subject, cold time.Duration) error {
	if c.Raw != "" {
		raw := make(map[string][]map[string]*measured)
		for _, r := range all {
			raw[r.row.name] = r.rounds
		}
		text, err := json.MarshalIndent(raw, "", "  ")
		if err == nil {
			err = os.WriteFile(c.Raw, text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if c.Benchstat != "" {
		if err := writeBenchstat(c.Benchstat, all, subjects); err != nil {
			return err
		}
	}
	if c.Rounds == 0 {
		return nil
	}
	text := guide.About(begun, fmt.Sprintf("%d rounds in %s", c.Rounds, time.Since(begun).Round(time.Minute))) + "\n\n" + markdown(all, subjects, cold)
	if l.repeated > 0 {
		text += fmt.Sprintf("\nMeasurements that were repeated, because a turn had failed: %d.\n", l.repeated)
	}
	if c.Into == "" {
		_, err := fmt.Fprint(out, "\n", text)
		return err
	}
	return guide.WriteTable(c.Into, "bench", text)
}

// measureGrowth measures each dimension on each store, and writes a plot for each dimension.
func (c *command) measureGrowth(ctx context.Context, l *lab, subjects []subject, errs io.Writer) error {
	for _, dimension := range bench.Dimensions() {
		var series []bench.Series
		var what string
		for _, s := range subjects {
			if s.store == "" {
				continue
			}
			fmt.Fprintf(errs, "%s  growth of %s, %s\n", time.Now().Format(time.TimeOnly), dimension, s.name)
			var g bench.Growth
			args := []string{"growth", dimension, "--duration", (c.Duration / 3).String(), "--warmup", "300ms"}
			if _, err := l.measure(ctx, s, 1, errs, args, &g); err != nil {
				return err
			}
			what = g.What
			series = append(series, bench.Series{Name: s.name, Points: g.Points})
		}
		title := fmt.Sprintf("CPU of %s (%s)", what, time.Now().UTC().Format(time.DateOnly))
		path := filepath.Join(c.Growth, "growth-"+dimension+".svg")
		if err := os.WriteFile(path, bench.Plot(title, dimension, "µs", series), 0o644); err != nil {
			return err
		}
	}
	return nil
}
