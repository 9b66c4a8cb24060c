package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestJavaScript runs testdata/*.test.mjs in node: the client on a scripted socket and a fake clock, and the page's pure modules.
// Without node the test is skipped, but fails where CI=true.
func TestJavaScript(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("node is not installed, and CI=true forbids leaving tests out: apt-get install nodejs")
		}
		t.Skip("LEFT OUT: node is not installed (apt-get install nodejs)")
	}
	scripts, err := filepath.Glob("testdata/*.test.mjs")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	command := exec.CommandContext(t.Context(), node, append([]string{"--test", "--test-reporter=spec"}, scripts...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	t.Logf("%s", output)
}
