package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"parley/cmd/internal/guide"
)

// command is the command line.
type command struct {
	Duration time.Duration `default:"1h" help:"No try begins after this time. Each row is tried at least once."`
	Tries    int           `help:"Tries of each row. Default: as many as fit into the duration."`
	Seed     uint64        `help:"Seed of the first try of each row; a seed gives the same schedule. Default: random."`
	Only     []string      `placeholder:"FAULT,..." help:"Run only these rows."`
	Skip     []string      `placeholder:"FAULT,..." help:"Do not run these rows."`
	Parallel int           `default:"${parallel}" help:"Number of tries at the same time."`
	Scale    int           `default:"100" help:"Size of floods and series of faults in percent. It changes the schedules."`
	Margin   time.Duration `default:"5s" help:"Added to each promised time, for a busy machine."`
	Binary   string        `type:"existingfile" placeholder:"FILE" help:"The server under test. Default: built from this checkout."`
	Table    string        `placeholder:"FILE" help:"Write the table into this file, between its two markers. Default: print it."`
	List     bool          `help:"Print the rows and stop."`
}

const description = `Drive real servers through faults, check what their clients saw, and print a table. ` +
	`It exits with status 1 if a promise was broken.`

func main() {
	testing.Init() // package redistest asks testing.Short
	_ = flag.CommandLine.Parse(nil)
	var c command
	kong.Parse(&c, kong.Name("chaos"), kong.Description(description), kong.Vars{"parallel": fmt.Sprint(2 * runtime.NumCPU())})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	broken, err := c.run(ctx, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || broken {
		os.Exit(1)
	}
}

// run makes the tries, prints progress to out, and writes the table. broken says whether a promise was broken.
func (c *command) run(ctx context.Context, out io.Writer) (broken bool, err error) {
	chosen, err := c.choose()
	if err != nil {
		return false, err
	}
	if c.List {
		for _, r := range chosen {
			fmt.Fprintf(out, "%-26s %s (%s)\n", r.name, r.fault, r.where)
		}
		return false, nil
	}
	dir, err := os.MkdirTemp("", "parley-chaos-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	binary := c.Binary
	if binary == "" {
		if binary, err = build(dir, "parley"); err != nil {
			return false, err
		}
	}
	if c.Seed == 0 {
		c.Seed = randomSeed()
	}
	begun := time.Now()
	say := func(format string, about ...any) {
		fmt.Fprintf(out, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, about...))
	}
	all := newTallies(chosen)
	p := plan{
		rows: chosen, seed: c.Seed, tries: c.Tries, duration: c.Duration, parallel: c.Parallel,
		conditions: conditions{binary: binary, scale: c.Scale, margin: c.Margin},
	}
	say("%d faults, first seed %d, commit %s", len(chosen), c.Seed, guide.Commit())
	p.run(ctx, say, func(r result) {
		all.add(r)
		report(r, c.Scale, say)
		broken = broken || len(r.violations) > 0
	})
	text := guide.About(begun, time.Since(begun).Round(time.Minute).String()+" of faults") + "\n\n" + all.markdown()
	if c.Table == "" {
		fmt.Fprint(out, "\n", text)
		return broken, nil
	}
	return broken, guide.WriteTable(c.Table, "chaos", text)
}

// choose returns the rows that the flags select.
func (c *command) choose() ([]*row, error) {
	chosen := rows()
	if len(c.Only) > 0 {
		var unknown string
		if chosen, unknown = find(c.Only); unknown != "" {
			return nil, fmt.Errorf("--only: unknown fault %q; --list prints the faults", unknown)
		}
	}
	if _, unknown := find(c.Skip); unknown != "" {
		return nil, fmt.Errorf("--skip: unknown fault %q; --list prints the faults", unknown)
	}
	return slices.DeleteFunc(chosen, func(r *row) bool { return slices.Contains(c.Skip, r.name) }), nil
}

// report prints a result. For a broken promise, it prints the command that repeats the try.
func report(r result, scale int, say func(format string, about ...any)) {
	switch {
	case r.skipped != "":
		say("%s: skipped: %s", r.row.name, r.skipped)
	case len(r.violations) == 0:
		say("%s, seed %d: no violation, %.0f s, %d confirmed sends, %d pieces, outage %s, end %s, %s", r.row.name, r.seed,
			r.took.Seconds(), r.sends, r.pieces, seconds(r.worst.outage), seconds(r.worst.ending), megabytes(r.worst.memory))
	default:
		say("%s, seed %d: %d VIOLATIONS\n  %s\n  repeat with: %s", r.row.name, r.seed, len(r.violations), summary(r.violations),
			repeat(r, scale))
	}
}

// summary joins the first violations.
func summary(violations []string) string {
	const most = 8
	text := strings.Join(violations[:min(most, len(violations))], "\n  ")
	if n := len(violations) - most; n > 0 {
		text += fmt.Sprintf("\n  and %d more", n)
	}
	return text
}

// repeat returns the command that repeats a try.
func repeat(r result, scale int) string {
	return fmt.Sprintf("go run ./cmd/chaos --only %s --seed %d --tries 1 --scale %d", r.row.name, r.seed, scale)
}
