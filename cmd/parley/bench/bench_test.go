package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startPipe starts a scripted model and a bare pipe, and returns options for a short run against the pipe.
func startPipe(t *testing.T) Options {
	model := httptest.NewServer(ScriptedModel{})
	t.Cleanup(model.Close)
	pipe := NewPipe(model.URL + "/v1")
	server := httptest.NewServer(pipe.Handler())
	t.Cleanup(func() { server.Close(); pipe.http.CloseIdleConnections() })
	return Options{Target: Target{URL: server.URL, PID: os.Getpid()}, Duration: 200 * time.Millisecond, Sessions: 20}
}

// The replies take 50 ms, so each workload makes at least one turn in 200 ms, also on a busy machine.
func TestWorkloads_OnPipe_CountTurnsAndTokens(t *testing.T) {
	reply := Reply{Tokens: 10, Interval: 5 * time.Millisecond}
	for name, run := range map[string]func(Options) (*Report, error){
		"streams":  func(o Options) (*Report, error) { return Streams(t.Context(), o, 3, reply) },
		"requests": func(o Options) (*Report, error) { return Requests(t.Context(), o, 3, reply, Window{}) },
		"viewers":  func(o Options) (*Report, error) { return Viewers(t.Context(), o, 3, reply) },
	} {
		t.Run(name, func(t *testing.T) {
			report, err := run(startPipe(t))
			if err != nil {
				t.Fatal(err)
			}
			if report.Err() != nil || report.Workload != name || report.Turns == 0 || report.Turn == nil || report.Turn.P50 < 45 {
				t.Errorf("%+v, error %v; want turns of 45 ms or more without an error", report, report.Err())
			}
			perTurn := report.Tokens / float64(report.Turns)
			// If a turn begins or ends outside the measured time, only some of its tokens count.
			if least, most := 3.0, 120.0; perTurn < least || perTurn > most {
				t.Errorf("%v tokens a turn, want from %v to %v", perTurn, least, most)
			}
			if (report.FirstToken != nil) != (name == "streams") {
				t.Errorf("the time to the first token is %v", report.FirstToken)
			}
			s := report.Server
			if s == nil || s.PID != os.Getpid() || s.CPUPerTurn <= 0 || s.CPUPerToken <= 0 || s.Resident == 0 || s.AllocsPerTurn == nil {
				t.Errorf("figures of the server: %+v", s)
			}
			checkOutput(t, report)
		})
	}
}

// checkOutput checks that the text and the JSON of a report have its figures.
func checkOutput(t *testing.T, report *Report) {
	t.Helper()
	var text bytes.Buffer
	report.Write(&text)
	for _, want := range []string{report.Workload, report.URL, "p50", "allocations a turn", "µs a token", "MB resident"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text does not contain %q:\n%s", want, &text)
		}
	}
	encoded, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var decoded Report
	if err := json.Unmarshal(encoded, &decoded); err != nil || decoded.Turns != report.Turns || *decoded.Server.AllocsPerTurn != *report.Server.AllocsPerTurn {
		t.Errorf("%s decodes to %+v, error %v", encoded, decoded, err)
	}
}

func TestIdle_OnPipe_MeasuresSockets(t *testing.T) {
	report, err := Idle(t.Context(), startPipe(t), 10)
	if err != nil {
		t.Fatal(err)
	}
	if report.Err() != nil || report.Server.Unit != "socket" || report.Server.Resident == 0 || report.Settings["number"] != 10 {
		t.Errorf("%+v, server %+v", report, report.Server)
	}
}

func TestStreams_Progress_LineWithCounts(t *testing.T) {
	o := startPipe(t)
	var progress bytes.Buffer
	o.Progress = &progress
	if _, err := Requests(t.Context(), o, 1, Reply{Tokens: 1}, Window{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(), "requests: 0.2 of 0.2 s, ") || !strings.Contains(progress.String(), " turns/s, ") {
		t.Errorf("progress: %q", &progress)
	}
}

// parleyThat starts a server that creates sessions and answers everything else with a status and a body.
func parleyThat(t *testing.T, status int, body string) Options {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/sessions" && status != http.StatusUnauthorized {
			fmt.Fprint(w, `{"sessionId":"session_0123456789abcdef"}`)
			return
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return Options{Target: Target{URL: server.URL, PID: os.Getpid()}, Duration: 50 * time.Millisecond, Sessions: 1}
}

func TestRequests_ServerRefuses_OneClearError(t *testing.T) {
	dead := startPipe(t)
	dead.Target.URL = "http://127.0.0.1:1"
	wrong := startPipe(t)
	wrong.Target.URL = "127.0.0.1:8420"
	gone := startPipe(t)
	gone.Target.PID = math.MaxInt32 - 1
	for want, o := range map[string]Options{
		"http://127.0.0.1:1 does not respond":      dead,
		`invalid address "127.0.0.1:8420"`:         wrong,
		"--pid: there is no process":               gone,
		"401 invalid_token: no":                    parleyThat(t, 401, `{"error":{"code":"invalid_token","message":"no"}}`),
		"PARLEY_TIERS":                             parleyThat(t, 429, `{"error":{"code":"rate_limit_exceeded","message":"wait"}}`),
		"502 provider_error: The model is dead.":   parleyThat(t, 502, `{"error":{"code":"provider_error","message":"The model is dead."}}`),
		"502 unknown: the response is no error of": parleyThat(t, 502, `<html>`),
		"the response is no JSON of Parley":        parleyThat(t, 200, `<html>`),
		"a reply ended as interrupted":             parleyThat(t, 200, `{"status":"interrupted"}`),
	} {
		_, err := Requests(t.Context(), o, 2, Reply{Tokens: 1}, Window{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got the error %v, want one line with %q", err, want)
		}
	}
}

// A model that breaks during the run must not go unnoticed.
func TestRequests_TurnsFailUnderLoad_ReportIsError(t *testing.T) {
	o := startPipe(t)
	turns := 0
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/sessions":
			fmt.Fprint(w, `{"sessionId":"session_0123456789abcdef"}`)
		case turns < 1:
			turns++
			fmt.Fprint(w, `{"status":"completed","content":"word ","usage":{"completion":1}}`)
		default:
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, `{"error":{"code":"provider_error","message":"gone"}}`)
		}
	}))
	defer broken.Close()
	o.Target.URL = broken.URL
	report, err := Requests(t.Context(), o, 1, Reply{Tokens: 1}, Window{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Err() == nil || report.Failed == 0 || len(report.Errors) != 1 || !strings.Contains(report.Err().Error(), "gone") {
		t.Errorf("%+v, error %v", report, report.Err())
	}
	if empty := (&Report{Workload: workloadRequests}); empty.Err() == nil {
		t.Error("a report without a turn is no error")
	}
}

func TestAdmissions_ServerAccepts_Error(t *testing.T) {
	if _, err := Admissions(t.Context(), startPipe(t), 1); err == nil || !strings.Contains(err.Error(), "it was accepted") {
		t.Errorf("a pipe, which checks nothing: got the error %v", err)
	}
	report, err := Admissions(t.Context(), refusing(t), 1)
	if err != nil || report.Err() != nil || report.Turns == 0 {
		t.Errorf("a server that refuses: %+v, error %v", report, err)
	}
}

func refusing(t *testing.T) Options {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"code":"validation_error","message":"userId is missing"}}`)
	}))
	t.Cleanup(server.Close)
	return Options{Target: Target{URL: server.URL}, Duration: 50 * time.Millisecond, Sessions: 1}
}

func TestRun_Cancelled_Ends(t *testing.T) {
	o := startPipe(t)
	o.Duration = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Streams(ctx, o, 2, Reply{Tokens: 5, Interval: time.Millisecond}); err == nil {
		t.Error("a cancelled run returned no error")
	}
}

func TestHistogram_ThousandDurations_Percentiles(t *testing.T) {
	h := newHistogram()
	if h.quantiles() != nil {
		t.Error("an empty histogram has percentiles")
	}
	for i := range 1000 {
		h.observe(time.Duration(i+1) * time.Millisecond)
	}
	h.observe(time.Hour) // counts as the longest
	q := h.quantiles()
	for name, pair := range map[string][2]float64{"p50": {q.P50, 500}, "p90": {q.P90, 900}, "p99": {q.P99, 990}, "max": {q.Max, 600_000}} {
		if math.Abs(pair[0]-pair[1]) > 0.003*pair[1] {
			t.Errorf("%s is %v ms, want %v", name, pair[0], pair[1])
		}
	}
	if q.Count != 1001 {
		t.Errorf("%d durations, want 1001", q.Count)
	}
}
