package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestJavaScript_AllScriptsPass runs testdata/*.test.mjs in node. These scripts test the client with a fake server and a fake
// clock. They also test the modules of the page that need no browser. Without node the test is skipped, or fails if CI=true.
func TestJavaScript_AllScriptsPass(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("node is not installed; with CI=true no test may be skipped: apt-get install nodejs")
		}
		t.Skip("node is not installed: apt-get install nodejs")
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
