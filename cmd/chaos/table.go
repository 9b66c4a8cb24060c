package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// tally sums the results of all tries of a row.
type tally struct {
	row                           *row
	tries, skipped, sends, pieces int
	violations                    int
	worst                         worst
	reason                        string // of the newest skip
}

// tallies has a tally for each row, in the order of the table.
type tallies []*tally

func newTallies(rows []*row) (all tallies) {
	for _, r := range rows {
		all = append(all, &tally{row: r})
	}
	return all
}

func (all tallies) add(r result) {
	for _, t := range all {
		if t.row.name != r.row.name {
			continue
		}
		if r.skipped != "" {
			t.skipped++
			t.reason = r.skipped
			return
		}
		t.tries++
		t.sends += r.sends
		t.pieces += r.pieces
		t.violations += len(r.violations)
		t.worst.outage = max(t.worst.outage, r.worst.outage)
		t.worst.ending = max(t.worst.ending, r.worst.ending)
		t.worst.memory = max(t.worst.memory, r.worst.memory)
	}
}

// markdown returns the table.
func (all tallies) markdown() string {
	var b strings.Builder
	b.WriteString("| fault | surroundings | tries | confirmed sends, pieces | longest outage | longest wait for an end | memory |" +
		" violations |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, t := range all {
		tries := fmt.Sprint(t.tries)
		if t.tries == 0 {
			tries = "skipped: " + cmp.Or(t.reason, "no time")
		}
		fmt.Fprintf(&b, "| %s (`%s`) | %s | %s | %d, %d | %s | %s | %s | %d |\n", t.row.fault, t.row.name, t.row.where, tries,
			t.sends, t.pieces, seconds(t.worst.outage), seconds(t.worst.ending), megabytes(t.worst.memory), t.violations)
	}
	return b.String()
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func megabytes(n int64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%d MB", n>>20)
}
