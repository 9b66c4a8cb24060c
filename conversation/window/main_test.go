package window

import (
	"flag"
	"os"
	"testing"
)

// TestMain has the properties hold for thousands of conversations, not the hundred that rapid takes by itself; a figure on
// the command line (-rapid.checks) wins, as that is read later.
func TestMain(m *testing.M) {
	if checks := flag.Lookup("rapid.checks"); checks != nil {
		if err := checks.Value.Set("3000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
