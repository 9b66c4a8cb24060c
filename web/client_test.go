package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The client is tested in its own language, on a scripted socket: testdata/*.test.mjs. Node is no requirement of
// Parley, so a machine without it leaves this out and says so, but CI must not.
func TestTheJavaScriptClientLosesNothing(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("node is needed to test static/client.js; install it (apt-get install nodejs)")
		}
		t.Skip("LEFT OUT: no node on this machine, so static/client.js is not tested (apt-get install nodejs)")
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
