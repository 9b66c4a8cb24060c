package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// transcript is the part of the README that this test runs.
var transcript = regexp.MustCompile("(?s)<!-- transcript -->\n+```sh\n(.*?)```\n+<!-- /transcript -->")

// TestTheTranscriptOfTheReadmeIsTrue runs what the README tells people to type, against a server as they have it.
func TestTheTranscriptOfTheReadmeIsTrue(t *testing.T) {
	needs(t, "bash", "curl")
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := transcript.FindSubmatch(readme)
	if found == nil {
		t.Fatal("the README has no block of sh between <!-- transcript --> and <!-- /transcript -->")
	}
	dir := t.TempDir()
	p := serveIn(t, dir, newWordsModel(t, time.Millisecond).env()...)
	shell := exec.Command("bash", "-euo", "pipefail")
	shell.Stdin = strings.NewReader(string(found[1]))
	shell.Dir, shell.Env = dir, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PARLEY=" + p.url, "KEY=" + declaredKey, "PARLEY_ADMIN_KEY=" + declaredKey,
	}
	output, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, expected := range []string{
		`(?m)^\{.*"content":"` + words(3) + `".*"status":"completed"`, `(?m)^event: message\.created$`, `(?m)^event: message\.completed$`,
		`"stream":\{"cursor":"`, `"cleared":4`, `"deleted":true`,
	} {
		if !regexp.MustCompile(expected).Match(output) {
			t.Errorf("nothing like %s is in what it printed:\n%s", expected, output)
		}
	}
}

// needs skips a test for which this machine lacks a command; where nothing may be left out, it fails.
func needs(t *testing.T, names ...string) (paths []string) {
	t.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		switch {
		case err == nil || errors.Is(err, exec.ErrDot):
			paths = append(paths, path)
		case os.Getenv("CI") == "true":
			t.Fatalf("%s is missing, and CI=true: nothing may be left out", name)
		default:
			t.Skipf("left out: %s is not installed", name)
		}
	}
	return paths
}
