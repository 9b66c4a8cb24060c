package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"parley/cmd/parley/bench"
)

// benchOutput runs `parley bench` with a short load, and returns its output and exit code.
func benchOutput(t *testing.T, url, key string, args ...string) (out, errs string, code int) {
	t.Helper()
	args = append([]string{"bench"}, args...)
	cmd := command(t, t.TempDir(), []string{"PARLEY=" + url, "KEY=" + key}, append(args, "--sessions", "10", "--warmup", "0s")...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	_ = cmd.Run() // the exit code says whether it failed
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// TestBench_EachWorkload_CountsTurns runs each workload in miniature against a server on the embedded store.
func TestBench_EachWorkload_CountsTurns(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(bench.ScriptedModel{})
	t.Cleanup(model.Close)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL="+model.URL+"/v1", "PARLEY_MODEL=scripted",
		"PARLEY_TIERS="+bench.GenerousTiers)
	for _, test := range []struct {
		args   string
		tokens bool // the workload counts tokens
	}{
		{"streams -n 3 --tokens 20 --interval 10ms --duration 700ms", true},
		{"requests -n 3 --tokens 20 --duration 300ms", true},
		{"requests -n 1 --tokens 5 --history 4 --policy semantic --max-tokens 2048 --duration 300ms", true},
		{"viewers -n 5 --tokens 20 --interval 10ms --duration 300ms", true},
		{"admissions -n 2 --duration 200ms", false},
	} {
		name, _, _ := strings.Cut(test.args, " ")
		t.Run(name, func(t *testing.T) {
			out, errs, code := benchOutput(t, p.url, declaredKey, append(strings.Fields(test.args), "--json")...)
			var report bench.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
				t.Fatalf("exit code %d, error %v:\n%s%s", code, err, out, errs)
			}
			if report.Workload != name || report.Turns == 0 || report.Failed != 0 || (report.Tokens > 0) != test.tokens {
				t.Errorf("%+v", report)
			}
			s := report.Server
			if s == nil || s.PID != p.cmd.Process.Pid || s.CPUPerTurn <= 0 || s.AllocsPerTurn == nil || *s.AllocsPerTurn < 50 || s.SyncsPerTurn == nil {
				t.Fatalf("figures of the server: %+v", s)
			}
			if test.tokens && *s.SyncsPerTurn == 0 {
				t.Error("turns without fdatasync")
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		out, errs, code := benchOutput(t, p.url, declaredKey, "idle", "-n", "20", "--duration", "100ms")
		if code != 0 || !strings.Contains(out, "KiB for each socket") {
			t.Errorf("exit code %d:\n%s%s", code, out, errs)
		}
	})
	t.Run("growth", func(t *testing.T) {
		plot := filepath.Join(t.TempDir(), "plot.svg")
		for _, dimension := range []string{"sessions", "messages", "keys", "hours"} { // viewers are a workload above
			out, errs, code := benchOutput(t, p.url, declaredKey, "growth", dimension, "--first", "4", "--doublings", "1", "--duration", "50ms", "--plot", plot)
			if image, err := os.ReadFile(plot); code != 0 || err != nil || !strings.Contains(out, "\n8 ") || !bytes.Contains(image, []byte(">8<")) {
				t.Errorf("%s: exit code %d, error %v:\n%s%s", dimension, code, err, out, errs)
			}
		}
	})
	if left := p.must("GET", "/v1/sessions", nil)["data"].([]any); len(left) > 0 {
		t.Errorf("%d sessions are left", len(left))
	}
}

// Figures of a server that refuses or fails must not look like good ones.
func TestBench_ServerRefuses_OneErrorAndExitCode1(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(bench.ScriptedModel{})
	model.Close()
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL="+model.URL+"/v1", "PARLEY_MODEL=scripted", "PARLEY_TIER=free")
	for name, test := range map[string]struct{ url, key, args, want string }{
		"bad address":    {"http://127.0.0.1:1", declaredKey, "requests", "http://127.0.0.1:1 does not respond: "},
		"bad key":        {p.url, "svc_live_unknown", "streams", "401 invalid_token: "},
		"dead model":     {p.url, declaredKey, "requests --sessions 1", "the first turn failed: POST "},
		"limits":         {p.url, declaredKey, "growth sessions --first 200 --doublings 0", "429 rate_limit_exceeded: "},
		"no server":      {p.url, declaredKey, "idle --pid 2147483647", "--pid: there is no process 2147483647"},
		"nothing to do":  {p.url, declaredKey, "viewers -n 0", "-n must be at least 1, not 0"},
		"no time at all": {p.url, declaredKey, "idle --duration 0s", "--duration and --sessions must be more than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := benchOutput(t, test.url, test.key, strings.Fields(test.args)...)
			last := errs[strings.LastIndex(strings.TrimSpace(errs), "\n")+1:]
			if code != 1 || out != "" || !strings.HasPrefix(last, "parley: ") || !strings.Contains(last, test.want) {
				t.Errorf("exit code %d, output %q, errors %q; want %q", code, out, errs, test.want)
			}
		})
	}
}

// The model and the pipe are processes of their own, which tell their addresses.
func TestBench_ModelAndPipe_ServeAWorkload(t *testing.T) {
	t.Parallel()
	address := func(args ...string) string {
		p := start(t, command(t, t.TempDir(), nil, append([]string{"bench"}, args...)...))
		if !p.out.await(func(text string) bool { return strings.HasSuffix(text, "\n") }, p.exited) {
			t.Fatalf("%v ended:\n%s%s", args, p.out, p.errs)
		}
		return strings.Fields(p.out.String())[1]
	}
	model := address("model")
	pipe := address("pipe", "--base-url", model)
	out, errs, code := benchOutput(t, pipe, "", "requests", "-n", "2", "--tokens", "3", "--duration", "100ms")
	if code != 0 || !strings.Contains(out, "allocations a turn") || !strings.Contains(errs, "requests: 0.1 of 0.1 s, ") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	if out, errs, code = benchOutput(t, pipe, "", "admissions"); code != 1 || out != "" {
		t.Errorf("admissions on a pipe, which admits everything: exit code %d:\n%s%s", code, out, errs)
	}
}
