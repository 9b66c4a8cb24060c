package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"parley/web"
)

// These files contain samples that the tests run.
const (
	readme        = "README.md"
	protocolGuide = "web/guides/protocol.md"
	aiSDKGuide    = "web/guides/ai-sdk.md"
	limitsGuide   = "web/guides/limits.md"
	keysGuide     = "web/guides/keys.md"
	redisGuide    = "web/guides/redis.md"
)

// sample returns the code block between <!-- name --> and <!-- /name --> in a file of the repository.
func sample(t *testing.T, file, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)<!-- " + name + " -->\n+```\\w+\n(.*?)```\n+<!-- /" + name + " -->").FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no block of code between <!-- %s --> and <!-- /%[2]s -->", file, name)
	}
	return string(found[1])
}

// prints runs a command. The command must succeed, and its output must match each regular expression.
func prints(t *testing.T, command *exec.Cmd, expected ...string) {
	t.Helper()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, expression := range expected {
		if !regexp.MustCompile(expression).Match(output) {
			t.Errorf("the output does not match %s:\n%s", expression, output)
		}
	}
}

// readerEnv returns the environment that the samples expect: the server's address and its admin key. HOME is dir.
func readerEnv(p *process, dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PARLEY=" + p.url, "KEY=" + declaredKey, "PARLEY_ADMIN_KEY=" + declaredKey,
	}
}

func TestSamples_Shell_PrintDocumentedOutput(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl")
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	reply := `(?m)^\{.*"content":"` + words(3) + `".*"status":"completed"`
	for _, test := range []struct {
		file, name string
		prints     []string
	}{
		{readme, "transcript", []string{reply, `(?m)^event: message\.created$`, `(?m)^event: message\.completed$`}},
		{protocolGuide, "transcript", []string{
			reply, `(?m)^event: message\.created$`, `(?m)^event: message\.completed$`, `"stream":\{"cursor":"`, `"cleared":4`, `"deleted":true`,
		}},
		{limitsGuide, "analytics", []string{`"series":\[`, `"billingPeriod":`, `"tier":"pro"`}},
		{keysGuide, "keys", []string{`"prefix":"svc_live_`, `"previousKeyExpiresAt":"`, `"revoked":true`}},
	} {
		t.Run(test.file+"/"+test.name, func(t *testing.T) {
			dir := t.TempDir()
			shell := exec.Command("bash", "-euo", "pipefail")
			shell.Stdin = strings.NewReader(sample(t, test.file, test.name))
			shell.Dir, shell.Env = dir, readerEnv(p, dir)
			prints(t, shell, test.prints...)
		})
	}
}

// The JavaScript sample runs in Node, in a folder that contains client.js. The Go sample runs with this checkout.
func TestSamples_Programs_PrintReply(t *testing.T) {
	t.Parallel()
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	reply := fmt.Sprintf(`(?m)^%s\ncompleted, %d tokens$`, words(3), tokensOf(words(3)))
	t.Run("javascript", func(t *testing.T) {
		node, dir := needs(t, "node")[0], t.TempDir()
		if err := os.CopyFS(dir, web.Files()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "chat.mjs"), []byte(sample(t, readme, "javascript")), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command(node, "--experimental-websocket", "--no-warnings", "chat.mjs")
		command.Dir, command.Env = dir, readerEnv(p, dir)
		prints(t, command, reply)
	})
	t.Run("go", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(program, []byte(sample(t, readme, "go")), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command("go", "run", program)
		command.Env = append(os.Environ(), "PARLEY="+p.url, "KEY="+declaredKey)
		prints(t, command, reply)
	})
}

// needs returns the paths of the named commands. If a command is missing, it skips the test. With CI=true, it fails the test
// instead.
func needs(t *testing.T, names ...string) (paths []string) {
	t.Helper()
	for _, name := range names {
		path, err := exec.LookPath(name)
		switch {
		case err == nil || errors.Is(err, exec.ErrDot):
			paths = append(paths, path)
		case os.Getenv("CI") == "true":
			t.Fatalf("%s is not installed; with CI=true no test may be skipped", name)
		default:
			t.Skipf("%s is not installed", name)
		}
	}
	return paths
}
