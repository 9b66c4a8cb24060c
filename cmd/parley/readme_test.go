package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"parley/web"
)

// readme returns a part of the README: the block of code between <!-- name --> and <!-- /name -->.
func readme(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- " + name + " -->\n+```\\w+\n(.*?)```\n+<!-- /" + name + " -->").FindSubmatch(text)
	if found == nil {
		t.Fatalf("the README has no block of code between <!-- %s --> and <!-- /%[1]s -->", name)
	}
	return string(found[1])
}

// prints fails the test unless a command succeeds and prints something like each of the expressions.
func prints(t *testing.T, command *exec.Cmd, expected ...string) {
	t.Helper()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, expression := range expected {
		if !regexp.MustCompile(expression).Match(output) {
			t.Errorf("nothing like %s is in what it printed:\n%s", expression, output)
		}
	}
}

// visitor is the environment that README's examples run in: with the server's address and a key, in a folder of its own.
func visitor(p *process, dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PARLEY=" + p.url, "KEY=" + declaredKey, "PARLEY_ADMIN_KEY=" + declaredKey,
	}
}

// TestTheTranscriptOfTheReadmeIsTrue runs what the README tells people to type, against a server as they have it.
func TestTheTranscriptOfTheReadmeIsTrue(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl")
	dir := t.TempDir()
	p := serveIn(t, dir, newWordsModel(t, time.Millisecond).env()...)
	shell := exec.Command("bash", "-euo", "pipefail")
	shell.Stdin = strings.NewReader(readme(t, "transcript"))
	shell.Dir, shell.Env = dir, visitor(p, dir)
	prints(t, shell,
		`(?m)^\{.*"content":"`+words(3)+`".*"status":"completed"`, `(?m)^event: message\.created$`, `(?m)^event: message\.completed$`,
		`"stream":\{"cursor":"`, `"cleared":4`, `"deleted":true`)
}

// TestTheProgramsOfTheReadmeAreTrue runs them: the JavaScript as Node runs it, where client.js lies beside it, and the Go.
func TestTheProgramsOfTheReadmeAreTrue(t *testing.T) {
	t.Parallel()
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	answer := `(?m)^` + words(3) + `\ncompleted, 3 tokens$`
	t.Run("javascript", func(t *testing.T) {
		node, dir := needs(t, "node")[0], t.TempDir()
		if err := os.CopyFS(dir, web.Files()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "chat.mjs"), []byte(readme(t, "javascript")), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command(node, "--experimental-websocket", "--no-warnings", "chat.mjs")
		command.Dir, command.Env = dir, visitor(p, dir)
		prints(t, command, answer)
	})
	t.Run("go", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(program, []byte(readme(t, "go")), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command("go", "run", program)
		command.Env = append(os.Environ(), "PARLEY="+p.url, "KEY="+declaredKey)
		prints(t, command, answer)
	})
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
