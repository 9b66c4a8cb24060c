package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/cmd/internal/child"
	"parley/web/browsertest"
)

// TestMain runs the tests, closes the browser that they share, removes the binary that they built, and checks for leaked
// goroutines.
func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// suite adds the cleanup to testing.M. goleak calls its Run and checks for leaks afterwards.
type suite struct{ *testing.M }

// Run runs the tests, cleans up, and returns the exit code.
func (s suite) Run() int {
	code := browsertest.Run(s.M)
	if folder := builtIn.Load(); folder != nil {
		_ = os.RemoveAll(*folder)
	}
	return code
}

// builtIn is the folder that contains the binary under test; nil until build has created it.
var builtIn atomic.Pointer[string]

// build builds parley once and returns the path of the binary. The binary has the race detector if PARLEY_TEST_RACE=true, or if
// the tests have the race detector. `make test` runs the tests without the race detector, which would more than double their CPU
// time. The tests only drive the binary and the browser.
var build = sync.OnceValues(func() (string, error) {
	race := os.Getenv("PARLEY_TEST_RACE") == "true"
	if info, ok := debug.ReadBuildInfo(); ok {
		race = race || slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	}
	folder, err := os.MkdirTemp("", "parley-test-")
	if err != nil {
		return "", err
	}
	builtIn.Store(&folder)
	path := filepath.Join(folder, "parley")
	build := exec.Command("go", "build", fmt.Sprintf("-race=%v", race), "-o", path, ".")
	if race {
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, output)
	}
	return path, nil
})

// parley returns the path of the binary under test. With -short it skips the test, because short tests start no process.
func parley(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: tests that start a process are skipped")
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// raceOptions disables a pause of the race detector: by default, a process waits a second before it exits.
const raceOptions = "GORACE=atexit_sleep_ms=0"

const declaredKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// process is a running `parley serve`.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	url    string        // without a slash at the end
	key    string        // API key for call and request
	out    *lines        // standard output
	errs   *lines        // standard error
	exited chan struct{} // closed when the process has ended and out and errs are complete
}

// command returns a command that runs parley in the folder dir. Its environment is env, and PATH, HOME and GORACE.
func command(t testing.TB, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(parley(t), args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, raceOptions}, env...)
	return cmd
}

// serveIn starts `parley serve` in the folder dir, on a free port, and waits until it is ready. Like a service manager, it starts
// the server again if the store was unavailable, because on a busy machine the store may miss its deadline.
func serveIn(t testing.TB, dir string, env ...string) *process {
	t.Helper()
	const attempts = 10
	for attempt := 1; ; attempt++ {
		p := start(t, command(t, dir, append(env, "PARLEY_ADDR=127.0.0.1:0"), "serve"))
		if p.ready() {
			return p
		}
		if attempt == attempts || !strings.Contains(p.errs.String(), "the service is unavailable") {
			t.Fatalf("the server ended before it was ready, %d times:\n%s%s", attempt, p.out, p.errs)
		}
	}
}

// ready waits until the server has printed its address. It returns false if the process ends first.
func (p *process) ready() bool {
	if !p.out.await(page.MatchString, p.exited) {
		return false
	}
	p.url = page.FindStringSubmatch(p.out.String())[1]
	return true
}

// page matches the start-up text, from the line with the URL of the page to the line with the key.
var page = regexp.MustCompile(`(?m)^ +page +(http://\S+)/\n(?:.*\n)* +key .*\n`)

// start starts a command. When the test ends, its cleanup kills the command.
func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, key: declaredKey, out: newLines(), errs: newLines(), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.errs
	if err := child.Start(cmd, func() { close(p.exited) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if strings.Contains(p.errs.String(), "WARNING: DATA RACE") {
			t.Errorf("the race detector reports:\n%s", p.errs)
		}
	})
	return p
}

// kill ends the process with SIGKILL, like a crash, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// signal sends a signal to the process. It does not wait for the effect.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits until the process ends and returns its state. It fails the test after timeout.
func (p *process) wait() *os.ProcessState {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState
	case <-time.After(timeout):
		p.t.Fatalf("the process still runs after %v:\n%s", timeout, p.errs)
		return nil
	}
}

// eventually waits until condition returns true. After timeout, which only a hang reaches, eventually fails the test with the
// message failure.
func eventually(t testing.TB, failure string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(timeout); !condition(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(failure)
		}
	}
}

// call makes a request and returns status and body of the response. An error means that no complete response arrived.
func (p *process) call(method, path string, body any) (int, map[string]any, error) {
	status, _, answer, err := p.request(method, path, body)
	return status, answer, err
}

// request is like call, and also returns the headers of the response. The headers of the request are names, each followed by its
// value.
func (p *process) request(method, path string, body any, headers ...string) (int, http.Header, map[string]any, error) {
	var reader io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, p.url+path, reader)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.key)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	var answer map[string]any
	err = json.NewDecoder(response.Body).Decode(&answer)
	return response.StatusCode, response.Header, answer, err
}

var client = &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}

// must makes a request and returns the body. It fails the test unless the status is 200. Like a client, it repeats a
// request after a 503, which the server returns if the machine is so busy that the store misses its deadline.
func (p *process) must(method, path string, body any) map[string]any {
	p.t.Helper()
	key := rand.Text()
	for late := time.Now().Add(timeout); ; <-time.After(100 * time.Millisecond) {
		status, _, answer, err := p.request(method, path, body, "Idempotency-Key", key)
		if err == nil && status == http.StatusOK {
			return answer
		}
		if status != http.StatusServiceUnavailable || time.Now().After(late) {
			p.t.Fatalf("%s %s: %d %v %v\n%s", method, path, status, answer, err, p.errs.String())
		}
	}
}

// lines collects the output of a process.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer  // guarded by mu
	grown chan struct{} // guarded by mu; closed at the next Write
}

func newLines() *lines { return &lines{grown: make(chan struct{})} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until condition returns true for the whole output. It returns false if the process ends first.
func (l *lines) await(condition func(text string) bool, exited <-chan struct{}) bool {
	for {
		l.mu.Lock()
		text, grown := l.text.String(), l.grown
		l.mu.Unlock()
		if condition(text) {
			return true
		}
		select {
		case <-grown:
		case <-exited:
			return condition(l.String())
		}
	}
}

// session creates a session and returns its id.
func (p *process) session() string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"})["sessionId"].(string)
}
