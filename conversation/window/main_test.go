package window

import (
	"flag"
	"os"
	"testing"
)

// TestMain checks each property with 3,000 conversations instead of rapid's 100. -rapid.checks on the command line,
// which is read later, overrides it.
func TestMain(m *testing.M) {
	if checks := flag.Lookup("rapid.checks"); checks != nil {
		if err := checks.Value.Set("3000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
