package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/web/browsertest"
)

// TestMain ends the browser that the tests share, removes the server that they built, and looks for goroutines that they left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// suite is testing.M as goleak wants it.
type suite struct{ *testing.M }

// Run runs the tests and returns the exit code.
func (s suite) Run() int {
	code := browsertest.Run(s.M)
	if folder := builtIn.Load(); folder != nil {
		_ = os.RemoveAll(*folder)
	}
	return code
}

// builtIn is the folder of the command under test, nil before its first use.
var builtIn atomic.Pointer[string]

// build builds the command under test, parley, and returns its path. It has the race detector if PARLEY_TEST_RACE=true, or if
// the tests themselves have it. The tests only drive it and the browser, so `make test` runs them without the race detector,
// which would more than double what they cost.
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

// parley returns the path of the command under test. It skips the test under -short, which is for tests without processes.
func parley(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no process is started")
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// raceOptions spares a process the second that the race detector otherwise waits at its end.
const raceOptions = "GORACE=atexit_sleep_ms=0"

const declaredKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// process is a running `parley serve`.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	url    string // without the last slash
	key    string // for call
	out    *lines // of standard output
	errs   *lines
	exited chan struct{} // closed when it has ended and all that it wrote is there
}

// command returns parley with those arguments, in a folder, with nothing in its environment but env.
func command(t testing.TB, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(parley(t), args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, raceOptions}, env...)
	return cmd
}

// serveIn starts `parley serve` in a folder and waits until it says where it is.
func serveIn(t testing.TB, dir string, env ...string) *process {
	t.Helper()
	p := start(t, command(t, dir, append(env, "PARLEY_ADDR=127.0.0.1:0"), "serve"))
	if !p.ready() {
		t.Fatalf("the server ended before it was ready:\n%s%s", p.out, p.errs)
	}
	return p
}

// ready waits until the server says where it is; false says that it has ended before.
func (p *process) ready() bool {
	if !p.out.await(page.MatchString, p.exited) {
		return false
	}
	p.url = page.FindStringSubmatch(p.out.String())[1]
	return true
}

// page is where the server says that its page is.
var page = regexp.MustCompile(`(?m)^ +page +(http://\S+)/\n(?:.*\n)* +key .*\n`)

// start starts a command. It is killed when the test is over, or when this process dies in any way: the kernel sends the
// signal of Pdeathsig when the thread that started the command ends, so that thread waits for the command.
func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, key: declaredKey, out: newLines(), errs: newLines(), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state is in cmd
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
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

// kill ends the process as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// signal sends a signal; see wait.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the end of the process and returns how it ended.
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

// eventually waits until something is so. The timeout is long enough that only what never comes reaches it.
func eventually(t testing.TB, otherwise string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(timeout); !so(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(otherwise)
		}
	}
}

// call makes a request. An error means that no whole answer came.
func (p *process) call(method, path string, body any) (int, map[string]any, error) {
	status, _, answer, err := p.request(method, path, body)
	return status, answer, err
}

// request is call with the answer's headers.
func (p *process) request(method, path string, body any) (int, http.Header, map[string]any, error) {
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

// must is call for what has to succeed.
func (p *process) must(method, path string, body any) map[string]any {
	p.t.Helper()
	status, answer, err := p.call(method, path, body)
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("%s %s: %d %v %v\n%s", method, path, status, answer, err, p.errs.String())
	}
	return answer
}

// lines is what a process has written so far.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer  // guarded by mu
	grown chan struct{} // guarded by mu; closed when there is more
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

// await waits until what was written is as wanted; false says that the process ended before.
func (l *lines) await(wanted func(text string) bool, exited <-chan struct{}) bool {
	for {
		l.mu.Lock()
		text, grown := l.text.String(), l.grown
		l.mu.Unlock()
		if wanted(text) {
			return true
		}
		select {
		case <-grown:
		case <-exited:
			return wanted(l.String())
		}
	}
}

// session makes a session and returns its id.
func (p *process) session() string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"})["sessionId"].(string)
}
