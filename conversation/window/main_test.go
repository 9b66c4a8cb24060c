package window

import (
	"flag"
	"os"
	"testing"
)

// TestMain makes rapid check each property with 3,000 conversations instead of 100. A flag -rapid.checks on the command
// line overrides this number, because m.Run parses the flags later.
func TestMain(m *testing.M) {
	if checks := flag.Lookup("rapid.checks"); checks != nil {
		if err := checks.Value.Set("3000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
