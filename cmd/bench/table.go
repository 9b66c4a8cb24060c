package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
)

// results holds the measurements of a row by subject and round. A round that is missing is nil.
type results struct {
	row      *row
	subjects []subject
	rounds   []map[string]*measured // by the name of the subject
}

// add adds a measurement of a round.
func (r *results) add(round int, name string, m *measured) {
	for len(r.rounds) <= round {
		r.rounds = append(r.rounds, make(map[string]*measured))
	}
	r.rounds[round][name] = m
}

// values returns the figures of a subject, in the order of the rounds.
func (r *results) values(f figure, name string) (values []float64) {
	for _, round := range r.rounds {
		if m := round[name]; m != nil {
			if v, ok := f.of(m); ok {
				values = append(values, v)
			}
		}
	}
	return values
}

// compared returns one value for each round: the ratio or the difference between the figure of one subject and that of another.
func (r *results) compared(f figure, name, with string) (values []float64) {
	for _, round := range r.rounds {
		m, other := round[name], round[with]
		if m == nil || other == nil {
			continue
		}
		v, ok := f.of(m)
		w, has := f.of(other)
		switch {
		case !ok || !has:
		case f.kind == difference:
			values = append(values, v-w)
		case w != 0:
			values = append(values, v/w)
		}
	}
	return values
}

// markdown returns the table. cold is the CPU time of a build without a cache; 0 for none.
func markdown(all []*results, subjects []subject, cold time.Duration) string {
	var b strings.Builder
	b.WriteString("| work |")
	for _, s := range subjects {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(subjects)) + "\n")
	for _, r := range all {
		for _, f := range r.row.figures {
			fmt.Fprintf(&b, "| %s |", f.name)
			for _, s := range subjects {
				fmt.Fprintf(&b, " %s |", r.cell(f, s))
			}
			b.WriteString("\n")
		}
	}
	if cold > 0 {
		fmt.Fprintf(&b, "| `go build ./cmd/parley` without a cache: CPU |%s\n", strings.Repeat(fmt.Sprintf(" %.0f s |", cold.Seconds()), len(subjects)))
	}
	return b.String()
}

// cell returns a figure of a subject, and compares it with those of the bare pipe and of the baseline.
func (r *results) cell(f figure, s subject) string {
	values := r.values(f, s.name)
	if len(values) == 0 {
		return "–"
	}
	text := spread(values, f.unit)
	if f.kind != alone && s.store != "" {
		if compared := r.compared(f, s.name, pipeName); len(compared) > 0 {
			text += ", **" + comparison(f.kind, compared, f.unit) + "**"
		}
	}
	if base := baselineOf(s); base != "" {
		f.kind = ratio
		if compared := r.compared(f, s.name, base); len(compared) > 0 {
			text += ", " + comparison(ratio, compared, "") + " of the baseline"
		}
	}
	return text
}

func comparison(k kind, values []float64, unit string) string {
	if k == difference {
		return "difference " + spread(values, unit)
	}
	return spread(values, "×")
}

// spread returns the median, and in brackets the least and the highest value if there are several.
func spread(values []float64, unit string) string {
	sorted := slices.Sorted(slices.Values(values))
	text := number((sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2)
	if unit == "×" {
		text += unit
	} else if unit != "" {
		text += " " + unit
	}
	if len(sorted) > 1 {
		text += fmt.Sprintf(" (%s–%s)", number(sorted[0]), number(sorted[len(sorted)-1]))
	}
	return text
}

// number formats a number with two decimals below 10, one below 100 and none above. From 1,000 on, it adds a comma.
func number(v float64) string {
	switch {
	case v >= 1000 || v <= -1000:
		whole := fmt.Sprintf("%.0f", v)
		return whole[:len(whole)-3] + "," + whole[len(whole)-3:]
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// writeBenchstat writes a file for each label, in the format of Go benchmarks. A line is one measurement.
func writeBenchstat(dir string, all []*results, subjects []subject) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := make(map[string]*strings.Builder)
	for _, s := range subjects {
		if files[s.label] == nil {
			files[s.label] = &strings.Builder{}
		}
		for _, r := range all {
			r.benchmarks(files[s.label], s)
		}
	}
	for label, b := range files {
		if err := os.WriteFile(filepath.Join(dir, label+".txt"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// benchmarks writes a line for each round of a subject.
func (r *results) benchmarks(w io.Writer, s subject) {
	for _, round := range r.rounds {
		m := round[s.name]
		if m == nil {
			continue
		}
		line := fmt.Sprintf("Benchmark%s/%s 1", capital(strings.ReplaceAll(r.row.name, "-", "_")), s.storeName())
		for i, f := range r.row.figures {
			if v, ok := f.of(m); ok {
				line += fmt.Sprintf(" %g %s", v, unitOf(f, i))
			}
		}
		fmt.Fprintln(w, line)
	}
}

// unitOf returns the unit of a figure in a file for benchstat. It has no space, and differs for each figure of a row.
func unitOf(f figure, i int) string {
	words := strings.FieldsFunc(f.name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return fmt.Sprintf("%s-%s", strings.Join(words[max(0, len(words)-4):], "_"), strings.TrimSpace(f.unit+fmt.Sprint(i)))
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
