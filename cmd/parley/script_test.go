package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"parley/stream/openai"
)

// TestScripts runs the scripts of testdata/script, which use parley as in a terminal. The scripts have testscript's commands and
// the following commands:
//
//	exits CODE COMMAND …        runs a command, which must exit with CODE
//	serve [VARIABLE=VALUE …]    starts `parley serve`; sets $PARLEY, $ADDRESS and, if the server prints a key, $KEY
//	shutdown                    stops the server with SIGTERM and writes its output to the files out and errs
//	call METHOD PATH [BODY]     makes a request to the server with $KEY; prints the status and the body
//	await REGEXP METHOD PATH    repeats a request until the body of the response matches
//	keyid                       sets $KEYID to the key id in the standard error of the previous command
//	secret FILE                 sets $KEY to the content of FILE
//	count N REGEXP FILE         REGEXP must match N times in FILE
//
// The condition [model-server] is true if a local model server runs at an address that parley detects.
func TestScripts(t *testing.T) {
	t.Parallel()
	folder := filepath.Dir(parley(t))
	_, _, detected := openai.Detect(t.Context())
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, raceOptions, "PARLEY_ADDR=127.0.0.1:0", "DECLARED="+declaredKey,
				"PATH="+folder+":"+os.Getenv("PATH"), "HOME="+env.WorkDir)
			env.Values[t] = &process{}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond != "model-server" {
				return false, errors.New("unknown condition")
			}
			return detected, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "count": count, "call": func(ts *testscript.TestScript, _ bool, args []string) { callIn(ts, running(t, ts), args) },
			"await": func(ts *testscript.TestScript, _ bool, args []string) { awaitIn(ts, running(t, ts), args) },
			"serve": func(ts *testscript.TestScript, _ bool, args []string) {
				p := start(t, command(t, ts.MkAbs("."), append([]string{"PARLEY_ADDR=" + ts.Getenv("PARLEY_ADDR")}, args...), "serve"))
				ts.Defer(p.kill)
				*running(t, ts) = *p
				introduce(ts, running(t, ts))
			},
			"keyid": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Setenv("KEYID", regexp.MustCompile(`key_\w{16}`).FindString(ts.ReadFile("stderr")))
			},
			"secret": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv("KEY", strings.TrimSpace(ts.ReadFile(args[0])))
			},
			"shutdown": func(ts *testscript.TestScript, _ bool, _ []string) { shutDown(ts, running(t, ts)) },
		},
	})
}

// running returns the server that the script started last.
func running(t *testing.T, ts *testscript.TestScript) *process { return ts.Value(t).(*process) }

// introduce waits until the server is ready. It sets $PARLEY, $ADDRESS and, if the server printed a key, $KEY.
func introduce(ts *testscript.TestScript, p *process) {
	if !p.ready() {
		ts.Fatalf("the server ended before it was ready:\n%s%s", p.out, p.errs)
	}
	ts.Setenv("PARLEY", p.url)
	ts.Setenv("ADDRESS", strings.TrimPrefix(p.url, "http://"))
	if regexp.MustCompile(`(?m)^ +key +below$`).MatchString(p.out.String()) {
		p.out.await(func(text string) bool { return strings.Contains(text, "Open the page with it: ") }, p.exited)
		ts.Setenv("KEY", regexp.MustCompile(`svc_live_\w+`).FindString(p.out.String()))
	}
}

func shutDown(ts *testscript.TestScript, p *process) {
	ts.Check(p.cmd.Process.Signal(syscall.SIGTERM))
	p.wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		ts.Fatalf("the server exited with %d:\n%s", code, p.errs)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(p.out.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("errs"), []byte(p.errs.String()), 0o600))
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND …")
	}
	code, err := 0, ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("the command exited with %d, want %s", code, args[0])
	}
}

func callIn(ts *testscript.TestScript, p *process, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: call METHOD PATH [BODY]")
	}
	var body any
	if len(args) > 2 {
		body = json.RawMessage(args[2])
	}
	p.key = ts.Getenv("KEY")
	status, answer, err := p.call(args[0], args[1], body)
	ts.Check(err)
	encoded, err := json.Marshal(answer)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", status, encoded)
}

func awaitIn(ts *testscript.TestScript, p *process, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: await REGEXP METHOD PATH")
	}
	p.key = ts.Getenv("KEY")
	for late := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		_, answer, err := p.call(args[1], args[2], nil)
		ts.Check(err)
		encoded, err := json.Marshal(answer)
		ts.Check(err)
		if regexp.MustCompile(args[0]).Match(encoded) {
			return
		}
		if time.Now().After(late) {
			ts.Fatalf("the response is still %s, want a match of %s", encoded, args[0])
		}
	}
}

func count(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: count N REGEXP FILE")
	}
	if n := len(regexp.MustCompile("(?m)"+args[1]).FindAllString(ts.ReadFile(args[2]), -1)); strconv.Itoa(n) != args[0] {
		ts.Fatalf("%d matches of %q in:\n%s", n, args[1], ts.ReadFile(args[2]))
	}
}
