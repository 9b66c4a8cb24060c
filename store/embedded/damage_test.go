package embedded

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// damageEnv is an environment variable with the path of an undamaged store. If it is set, this test binary runs damageChild.
	// damageSeedsEnv has the first seed and the number of seeds.
	damageEnv      = "PARLEY_STORE_DAMAGE_CHILD"
	damageSeedsEnv = "PARLEY_STORE_DAMAGE_SEEDS"
	// damageTriesEnv sets the number of seeds of TestDamage. The figures in doc.go are those of 300 seeds for each target.
	damageTriesEnv = "PARLEY_STORE_DAMAGE_TRIES"
)

// The test damages the file of a store in many ways, before the store's start and while the store runs. The store is in
// a child process, because a damage could kill the process. Each seed chooses one damage.
func TestDamage_AnyPage_RefusedOrUnavailable(t *testing.T) {
	t.Parallel()
	tries, _ := strconv.Atoi(cmp.Or(os.Getenv(damageTriesEnv), "24"))
	for _, target := range []string{"stopped", "running"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			makeDamageTemplate(t, path)
			outcomes := make(map[string]int)
			for seed := 0; seed < tries; {
				seed += damageSome(t, path, target, seed, tries-seed, outcomes)
			}
			for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
				t.Logf("%s: %3d %s", target, outcomes[outcome], outcome)
			}
			for outcome, n := range outcomes {
				if outcome, _, _ = strings.Cut(outcome, ", "); !slices.Contains([]string{"refused", "unavailable", "unharmed"}, outcome) {
					t.Errorf("%s: %d of %d damages ended as %s", target, n, tries, outcome)
				}
			}
		})
	}
}

// damageSome runs a child for the seeds from first on. It returns the number of seeds that the child has tried. The child stops
// early if a damage kills it.
func damageSome(t *testing.T, path, target string, first, most int, outcomes map[string]int) (tried int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), damageEnv+"="+path, fmt.Sprintf("%s=%s %d %d", damageSeedsEnv, target, first, most))
	var errs bytes.Buffer
	child.Stderr = &errs
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	begun, lines := "", bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "begin "); ok {
			begun = rest
			continue
		}
		tried++
		outcome, detail, _ := strings.Cut(line, ": ")
		outcomes[outcome]++
		begun, detail = "", begun+": "+detail
		t.Logf("%s %s: %s", target, outcome, detail)
	}
	if err := child.Wait(); err != nil {
		tried++
		outcomes[deathOf(errs.String())]++
		t.Logf("%s died (%s), %s: %v\n%.1500s", target, deathOf(errs.String()), begun, err, errs.String())
	}
	return tried
}

// deathOf returns the cause of a process's death. errs is the error output of the process.
func deathOf(errs string) string {
	for _, sign := range []string{"SIGSEGV", "SIGBUS", "stack overflow", "hung", "panic"} {
		if strings.Contains(errs, sign) {
			return "died of " + sign
		}
	}
	return "died"
}
