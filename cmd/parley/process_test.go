package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asCommand has the test binary be the command itself: a real process, that can be killed.
const asCommand = "PARLEY_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const declaredKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// process is a running `parley serve`.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	url  string // without the last slash
	out  *lines // of standard output
	errs *lines
}

// command returns the command with those arguments, in a folder, with nothing in its environment but env.
func command(dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append([]string{asCommand + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	return cmd
}

// serveIn starts `parley serve` in a folder and waits until it says where it is.
func serveIn(t testing.TB, dir string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: command(dir, append(env, "PARLEY_ADDR=127.0.0.1:0"), "serve"), out: &lines{}, errs: &lines{}}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	scanner := bufio.NewScanner(stdout)
	for p.url == "" {
		if !scanner.Scan() {
			t.Fatalf("the server ended before it was ready:\n%s%s", p.out.String(), p.errs.String())
		}
		_, _ = p.out.Write(append(scanner.Bytes(), '\n'))
		if _, address, ok := strings.Cut(scanner.Text(), "page "); ok && strings.Contains(address, "http://") {
			p.url = strings.TrimRight(strings.TrimSpace(address), "/")
		}
	}
	go func() { // it ends with the process
		for scanner.Scan() {
			_, _ = p.out.Write(append(scanner.Bytes(), '\n'))
		}
	}()
	return p
}

// kill ends the process as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// signal sends a signal and returns the exit code once the process has ended.
func (p *process) signal(s syscall.Signal) int {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// call makes a request. An error means that no whole answer came.
func (p *process) call(method, path string, body any) (int, map[string]any, error) {
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
	request.Header.Set("Authorization", "Bearer "+declaredKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	var answer map[string]any
	err = json.NewDecoder(response.Body).Decode(&answer)
	return response.StatusCode, answer, err
}

var client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

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
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// word is the i-th word of what the test's model says.
func word(i int) string { return fmt.Sprintf("wörd-%d ", i) }

// words are the first n of them.
func words(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(word(i))
	}
	return all.String()
}
