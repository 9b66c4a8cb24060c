package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"parley/cmd/parley/bench"
	"parley/store/redis/redistest"
)

// benchOutput runs `parley bench` with a short load in the test's process, and returns its output and exit code. On a busy
// machine, a run may end without a turn. benchOutput repeats such a run.
func benchOutput(url, key string, args ...string) (out, errs string, code int) {
	args = append([]string{"bench"}, args...)
	for range 20 {
		var o, e bytes.Buffer
		code = run(append(args, url, "--key", key, "--sessions", "10", "--warmup", "0s"), &o, &e)
		out, errs = o.String(), e.String()
		if !strings.Contains(errs, "no turn ended in the measured time") {
			break
		}
	}
	return out, errs, code
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
		{"requests -n 1 --tokens 5 --history 4 --policy semantic --max-tokens 2048 --duration 300ms", true},
		{"viewers -n 5 --tokens 20 --interval 10ms --duration 300ms", true},
		{"admissions -n 2 --duration 200ms", false},
	} {
		name, _, _ := strings.Cut(test.args, " ")
		t.Run(name, func(t *testing.T) {
			out, errs, code := benchOutput(p.url, declaredKey, append(strings.Fields(test.args), "--json")...)
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
		out, errs, code := benchOutput(p.url, declaredKey, "idle", "-n", "20", "--duration", "100ms")
		if code != 0 || !strings.Contains(out, "KiB for each socket") {
			t.Errorf("exit code %d:\n%s%s", code, out, errs)
		}
	})
	t.Run("growth", func(t *testing.T) {
		plot := filepath.Join(t.TempDir(), "plot.svg")
		for _, dimension := range []string{"sessions", "keys"} { // the others are workloads above, or measure another size
			out, errs, code := benchOutput(p.url, declaredKey, "growth", dimension, "--first", "4", "--doublings", "1", "--duration", "50ms", "--plot", plot)
			if image, err := os.ReadFile(plot); code != 0 || err != nil || !strings.Contains(out, "\n8 ") || !bytes.Contains(image, []byte(">8<")) {
				t.Errorf("%s: exit code %d, error %v:\n%s%s", dimension, code, err, out, errs)
			}
		}
		out, errs, code := benchOutput(p.url, declaredKey, "growth", "messages", "--first", "40", "--doublings", "0", "--duration", "50ms", "--json")
		var grown bench.Growth
		if err := json.Unmarshal([]byte(out), &grown); err != nil || code != 0 || len(grown.Points) != 1 || grown.Points[0].Size <= 40 {
			t.Errorf("messages: exit code %d, error %v:\n%s%s", code, err, out, errs) // the measured turns add messages
		}
	})
	if left := p.must("GET", "/v1/sessions", nil)["data"].([]any); len(left) > 0 {
		t.Errorf("%d sessions are left", len(left))
	}
}

// A run that the server refuses must print an error and no figures.
func TestBench_ServerRefuses_OneErrorAndExitCode1(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(bench.ScriptedModel{})
	model.Close()
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL="+model.URL+"/v1", "PARLEY_MODEL=scripted", "PARLEY_TIER=free")
	for _, test := range []struct{ name, url, key, args, want string }{
		{"bad address", "http://127.0.0.1:1", declaredKey, "requests", "http://127.0.0.1:1 does not respond: "},
		{"bad key", p.url, "svc_live_unknown", "streams", "401 invalid_token: "},
		{"dead model", p.url, declaredKey, "requests", "the first turn failed: POST "},
		{"no server", p.url, declaredKey, "idle --pid 2147483647", "--pid: there is no process 2147483647"},
		{"nothing to do", p.url, declaredKey, "viewers -n 0", "-n must be at least 1, not 0"},
		{"no time at all", p.url, declaredKey, "idle --duration 0s", "--duration and --sessions must be more than 0"},
		{"limits", p.url, declaredKey, "growth sessions --first 200 --doublings 0", "429 rate_limit_exceeded: "}, // the last, because the account has no requests left
	} {
		t.Run(test.name, func(t *testing.T) {
			out, errs, code := benchOutput(test.url, test.key, strings.Fields(test.args)...)
			last := errs[strings.LastIndex(strings.TrimSpace(errs), "\n")+1:]
			if code != 1 || out != "" || !strings.HasPrefix(last, "parley: ") || !strings.Contains(last, test.want) {
				t.Errorf("exit code %d, output %q, errors %q; want %q", code, out, errs, test.want)
			}
		})
	}
}

// The model serves the first turns of a run, and then refuses.
func TestBench_ModelFailsUnderLoad_FiguresAndExitCode1(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/chat/completions") && asked.Add(1) > 3 { // not the probes
			http.Error(w, `{"error":{"message":"secret text of the model"}}`, http.StatusBadRequest)
			return
		}
		bench.ScriptedModel{}.ServeHTTP(w, r)
	}))
	t.Cleanup(model.Close)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL="+model.URL+"/v1", "PARLEY_MODEL=scripted",
		"PARLEY_TIERS="+bench.GenerousTiers)
	out, errs, code := benchOutput(p.url, declaredKey, "requests", "-n", "1", "--tokens", "3", "--duration", "500ms", "--json")
	var report bench.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || report.Failed == 0 || len(report.Errors) != 1 {
		t.Errorf("exit code %d, error %v: %s", code, err, out)
	}
	if !regexp.MustCompile(`parley: \d+ turns failed and \d+ ended: POST .*: 502 provider_error: `).MatchString(errs) || strings.Contains(out+errs, "secret") {
		t.Errorf("errors: %s", errs)
	}
}

func TestBench_OnRedis_ReportHasCostOfRedis(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(bench.ScriptedModel{})
	t.Cleanup(model.Close)
	redis := redistest.Single(t)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL="+model.URL+"/v1", "PARLEY_MODEL=scripted",
		"PARLEY_TIERS="+bench.GenerousTiers, "PARLEY_STORE="+redis.URL+redistest.Patient)
	out, errs, code := benchOutput(p.url, declaredKey, "requests", "-n", "4", "--tokens", "3", "--duration", "300ms", "--redis", redis.Addr, "--json")
	var report bench.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Redis == nil {
		t.Fatalf("exit code %d, error %v:\n%s%s", code, err, out, errs)
	}
	if r := report.Redis; r.CPUPerTurn <= 0 || r.ScriptsPerTurn <= 0 || r.CallsPerTurn["evalsha"] < 1 || r.Resident == 0 {
		t.Errorf("what Redis paid: %+v", r)
	}
	if report.Server == nil || report.Server.SyncsPerTurn != nil {
		t.Errorf("figures of a server without a file: %+v", report.Server)
	}
}

// The model and the pipe run as processes, and print their addresses.
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
	out, errs, code := benchOutput(pipe, "", "requests", "-n", "2", "--tokens", "3", "--duration", "100ms")
	if code != 0 || !strings.Contains(out, "allocations a turn") || !strings.Contains(errs, "requests: 0.1 of 0.1 s, ") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	if out, errs, code = benchOutput(pipe, "", "admissions"); code != 1 || out != "" {
		t.Errorf("admissions on a pipe, which admits everything: exit code %d:\n%s%s", code, out, errs)
	}
}
