package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// shortScale is the size of a flood or a series of faults in the short form, in percent of the full size. It keeps
	// the short form at about 20 s of CPU time.
	shortScale = 10
	// shortMargin is large, because the other suites run at the same time. A service that does not recover from a fault
	// exceeds even this margin.
	shortMargin = 20 * time.Second
	// shortSeed is the seed of each row in the short form, so that a failure is not a matter of luck. `make chaos`
	// chooses other seeds.
	shortSeed = 1
)

// server builds the server once for all tests.
var server = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "parley-chaos-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	return build(dir, "parley")
})

// builtIn is the folder of the server; "" if it was not built.
var builtIn string

// TestMain removes the server after the tests, and checks for leaked goroutines.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if builtIn != "" {
			_ = os.RemoveAll(builtIn)
		}
		os.Exit(code)
	}))
}

// The short form of `make chaos`: each row once, and each seed that once broke a promise.
func TestChaos_EachFault_PromisesKept(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: tests that start a process are skipped")
	}
	all, err := parseSeeds(seedList)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows() {
		same := func(k kept) bool { return k.row.name == r.name && k.seed == shortSeed }
		if r.short && !slices.ContainsFunc(all, same) {
			all = append(all, kept{r, shortSeed})
		}
	}
	binary, err := server()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		t.Run(fmt.Sprintf("%s/%d", k.row.name, k.seed), func(t *testing.T) {
			t.Parallel()
			result := try(k.row, conditions{binary, shortScale, shortMargin}, k.seed, t.Logf)
			switch {
			case strings.HasSuffix(result.skipped, notInstalled) && os.Getenv("CI") == "true":
				t.Errorf("CI=true: no test may be skipped: %s", result.skipped)
			case result.skipped != "":
				t.Skip(result.skipped)
			case len(result.violations) > 0:
				t.Errorf("%d violations\n  %s\nrepeat with: %s", len(result.violations), summary(result.violations),
					repeat(result, shortScale))
			}
		})
	}
}

// A schedule depends on the seed only.
func TestSchedule_SameSeed_SameSteps(t *testing.T) {
	for _, r := range rows() {
		schedule := func(seed uint64) string {
			w := &world{scene: &scene{}, row: r, random: random(seed), nodes: make([]*node, 3)}
			all := w.kills(4)
			all = append(all, w.sleeps()...)
			all = append(all, w.cuts(3)...)
			return timetable(append(all, w.twice(time.Second, 2*time.Second, "a", nil, "b", nil)...))
		}
		if a, b, c := schedule(7), schedule(7), schedule(8); a != b || a == c {
			t.Errorf("two schedules of seed 7: %s and %s; one of seed 8: %s", a, b, c)
		}
	}
}

func TestRows_EachRow_CompleteWithUniqueName(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		if seen[r.name] || r.name == "" || r.fault == "" || r.where == "" || r.try == nil {
			t.Errorf("row %q is not unique or not complete", r.name)
		}
		seen[r.name] = true
	}
}

func TestSeeds_InvalidLine_Refused(t *testing.T) {
	for _, list := range []string{"node-killed\n", "nothing 3\n", "node-killed x"} {
		if _, err := parseSeeds(list); err == nil {
			t.Errorf("the list %q is accepted", list)
		}
	}
	all, err := parseSeeds("# a comment\n\nnode-killed 3 # broke something\n")
	if err != nil || len(all) != 1 || all[0].row.name != "node-killed" || all[0].seed != 3 {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestTable_ResultsOfOneRow_WorstIsKept(t *testing.T) {
	r := rows()[0]
	all := newTallies([]*row{r, rows()[1]})
	all.add(result{row: r, sends: 2, pieces: 3, worst: worst{outage: 2 * time.Second, memory: 50 << 20}})
	second := worst{outage: time.Second, ending: 3 * time.Second}
	all.add(result{row: r, sends: 1, pieces: 1, worst: second, violations: []string{"x"}})
	all.add(result{row: rows()[1], skipped: "no rights"})
	table := all.markdown()
	for _, want := range []string{"| 2 | 3, 4 | 2.0 s | 3.0 s | 50 MB | 1 |", "| skipped: no rights | 0, 0 | – | – | – | 0 |"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// The short form builds no server with a patched clock, because that compiles the standard library. So this test checks that the
// patch still fits.
func TestClock_PatchFitsPackageTime(t *testing.T) {
	if _, err := patchedTime(); err != nil {
		t.Error(err)
	}
}
