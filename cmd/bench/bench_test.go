package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/cmd/parley/bench"
)

// measuredCPU returns a measurement with the given CPU time and allocations of a turn.
func measuredCPU(cpu, allocations float64) *measured {
	return &measured{Report: &bench.Report{
		Turn: &bench.Quantiles{}, FirstToken: &bench.Quantiles{P50: cpu / 100},
		Server: &bench.Server{CPUPerTurn: cpu, CPUPerToken: cpu / 10, AllocsPerTurn: &allocations},
	}}
}

// twoRounds returns two rounds of the row "requests", in which the embedded store takes 2 and 3 times the CPU of the pipe.
func twoRounds() ([]*results, []subject) {
	subjects := []subject{
		{pipeName, "", "", "pipe"}, {"embedded (baseline)", "embedded", "", "baseline"}, {"embedded", "embedded", "", "branch"},
	}
	r := &results{row: rows()[slices.IndexFunc(rows(), func(r *row) bool { return r.name == "requests" })], subjects: subjects}
	r.add(0, pipeName, measuredCPU(100, 50))
	r.add(0, "embedded (baseline)", measuredCPU(400, 600))
	r.add(0, "embedded", measuredCPU(200, 300))
	r.add(1, pipeName, measuredCPU(200, 50))
	r.add(1, "embedded (baseline)", measuredCPU(1200, 600))
	r.add(1, "embedded", measuredCPU(600, 300))
	return []*results{r}, subjects
}

func TestMarkdown_TwoRounds_MediansAndRatiosOfSameRound(t *testing.T) {
	all, subjects := twoRounds()
	got := markdown(all, subjects, 0)
	for _, want := range []string{
		"| work | bare pipe | embedded (baseline) | embedded |\n| --- | --- | --- | --- |\n",
		"| JSON request of 50 tokens, 64 callers: CPU | 150 µs (100–200) | 800 µs (400–1,200), **5.00× (4.00–6.00)** |" +
			" 400 µs (200–600), **2.50× (2.00–3.00)**, 0.50× (0.50–0.50) of the baseline |\n",
		"| … allocations | 50.0 (50.0–50.0) | 600 (600–600), **12.0× (12.0–12.0)** | 300 (300–300), **6.00× (6.00–6.00)**, 0.50× (0.50–0.50) of the baseline |\n",
		"| … Redis' own CPU a turn | – | – | – |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table has no line %s:\n%s", want, got)
		}
	}
	if cold := markdown(all, subjects, 206*time.Second); !strings.HasSuffix(cold, "CPU | 206 s | 206 s | 206 s |\n") {
		t.Errorf("a table with a cold build: %s", cold)
	}
	first := figure{"first token", "ms", func(m *measured) (float64, bool) { return m.FirstToken.P50, true }, difference}
	if cell := all[0].cell(first, subjects[1]); cell != "8.00 ms (4.00–12.0), **difference 6.50 ms (3.00–10.0)**" {
		t.Errorf("a difference: %s", cell)
	}
}

func TestNumber_LargerValue_FewerDecimals(t *testing.T) {
	for value, want := range map[float64]string{0: "0.00", 0.154: "0.15", 9.876: "9.88", 46.52: "46.5", 112.4: "112", 1740: "1,740", 23_456: "23,456", -0.5: "-0.50"} {
		if got := number(value); got != want {
			t.Errorf("%v is written %s, want %s", value, got, want)
		}
	}
}

func TestWriteBenchstat_FileForEachLabel(t *testing.T) {
	all, subjects := twoRounds()
	dir := t.TempDir()
	if err := writeBenchstat(dir, all, subjects); err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{
		"pipe": "BenchmarkRequests/pipe 1 100 ", "baseline": "BenchmarkRequests/embedded 1 400 ", "branch": "BenchmarkRequests/embedded 1 200 ",
	} {
		text, err := os.ReadFile(filepath.Join(dir, label+".txt"))
		if err != nil || !strings.HasPrefix(string(text), want) || strings.Count(string(text), "\n") != 2 {
			t.Errorf("%s: %q, error %v; want two lines, the first with %q", label, text, err, want)
		}
	}
}

func TestRows_NamesAndUnits_Unique(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range rows() {
		if names[r.name] || len(r.figures) == 0 || r.seconds == 0 {
			t.Errorf("the row %s is not complete, or there are two", r.name)
		}
		names[r.name] = true
		units := make(map[string]bool)
		for i, f := range r.figures {
			if unit := unitOf(f, i); units[unit] || strings.Contains(unit, " ") {
				t.Errorf("%s: the unit %q of benchstat is not unique, or has a space", r.name, unit)
			} else {
				units[unit] = true
			}
			if v, ok := f.of(&measured{Report: &bench.Report{Turn: &bench.Quantiles{}, FirstToken: &bench.Quantiles{}}}); v != 0 && ok {
				t.Errorf("%s: a figure of an empty report is %v", f.name, v)
			}
		}
	}
}

func TestRun_Mistakes_ClearError(t *testing.T) {
	for want, c := range map[string]command{
		`unknown row "moon"`:          {Only: []string{"moon"}},
		`unknown row "sun"`:           {Skip: []string{"sun"}},
		"--into needs all rows":       {Only: []string{"idle"}, Into: "guide.md"},
		`--cores: invalid value`:      {Cores: "3"},
		`--cores: cannot use "99999"`: {Cores: "99999/99999"},
	} {
		var out, errs bytes.Buffer
		if err := c.run(t.Context(), &out, &errs); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("got the error %v and the output %q, want %q", err, &out, want)
		}
	}
}

// TestRun_OneRow_TableAndFiles measures one row for a moment: it starts all processes except Redis.
func TestRun_OneRow_TableAndFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: no process is started")
	}
	dir := t.TempDir()
	c := command{
		Rounds: 1, Duration: 200 * time.Millisecond, Only: []string{"one-caller"}, Stores: []string{"embedded"}, Cores: "none", Dir: dir,
		Benchstat: filepath.Join(dir, "stat"), Raw: filepath.Join(dir, "raw.json"),
	}
	var out, errs bytes.Buffer
	if err := c.run(t.Context(), &out, &errs); err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	for _, want := range []string{"1 rounds in ", "| work | bare pipe | embedded |", "| JSON request of 50 tokens, one caller: CPU | ", "×**", "| … time p50 | "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, &out)
		}
	}
	raw, err := os.ReadFile(c.Raw)
	if err != nil || !bytes.Contains(raw, []byte(`"residentAtStart"`)) {
		t.Errorf("the reports are %.200s, error %v", raw, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "stat", "branch.txt")); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "parley-bench-*")); len(left) > 0 {
		t.Errorf("folders are left: %q", left)
	}
}
