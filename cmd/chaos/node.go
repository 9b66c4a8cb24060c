package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"parley/cmd/internal/child"
	"parley/store/redis/redistest"
)

// node is a process of the server under test. It keeps its address when it is started again.
type node struct {
	w    *world
	dir  string // the working directory
	addr string // host:port
	env  []string

	mu       sync.Mutex
	cmd      *exec.Cmd     // guarded by mu; nil before the first start
	output   *tail         // guarded by mu; the output of the running process
	exited   chan struct{} // guarded by mu; closed when the process has ended
	expected bool          // guarded by mu; the harness has ended the process, or a start may fail
	peak     int64         // guarded by mu; the highest resident memory so far, in bytes
}

// startTimeout is the longest wait for a server that starts. A server that needs longer hangs.
const startTimeout = time.Minute

// newNode returns a server that is not started yet. env is its environment.
func newNode(w *world, dir string, env ...string) *node {
	return &node{w: w, dir: dir, addr: "127.0.0.1:" + redistest.FreePort(w), env: env}
}

// start starts the process and waits until it serves. Like a service manager, it starts the process again after a start that
// failed because the store was unavailable.
func (n *node) start() {
	for deadline := time.Now().Add(startTimeout); ; {
		if n.launch() {
			return
		}
		if time.Now().After(deadline) || !strings.Contains(n.text(), "unavailable") {
			n.w.Fatalf("the server does not start:\n%s", n.text())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// launch starts the process. It returns true when the process serves, and false if the process ends before or hangs.
func (n *node) launch() bool {
	cmd := exec.Command(n.w.binary, "serve")
	cmd.Dir = n.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "PARLEY_ADDR=" + n.addr}, n.env...)
	output := &tail{}
	cmd.Stdout, cmd.Stderr = output, output
	exited := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.output, n.exited, n.expected = cmd, output, exited, true
	n.mu.Unlock()
	ended := func() {
		n.ended(cmd, output)
		close(exited)
	}
	if err := child.Start(cmd, ended); err != nil {
		n.w.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(startTimeout); ; {
		if strings.Contains(output.String(), "Parley is ready.") {
			n.mu.Lock()
			n.expected = false
			n.mu.Unlock()
			return true
		}
		select {
		case <-exited:
			return false
		case <-late:
			n.kill()
			return false
		case <-tick.C:
		}
	}
}

// ended is called when a process has ended. If the harness did not end the process, ended records a crash.
func (n *node) ended(cmd *exec.Cmd, output *tail) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.expected {
		n.w.record.crash(fmt.Sprintf("%v: %s", cmd.ProcessState, reason(output.String())))
	}
	if strings.Contains(output.String(), "WARNING: DATA RACE") {
		n.w.record.crash(reason(output.String()))
	}
}

// signs lists the texts with which the message of a crash begins.
var signs = []string{"panic:", "fatal error:", "unexpected fault address", "SIGSEGV", "WARNING: DATA RACE"}

// reason returns the part of a server's output that says why it ended, without most of the trace.
func reason(output string) string {
	const most = 500
	for _, sign := range signs {
		if i := strings.Index(output, sign); i >= 0 {
			return output[i:min(i+most, len(output))]
		}
	}
	return output[max(0, len(output)-most):]
}

// kill ends the process with SIGKILL and waits for its end.
func (n *node) kill() {
	n.signal(syscall.SIGKILL)
	n.mu.Lock()
	exited := n.exited
	n.mu.Unlock()
	if exited != nil {
		<-exited
	}
}

// signal sends a signal to the process. SIGKILL and SIGTERM make its end expected.
func (n *node) signal(s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return
	}
	n.expected = n.expected || s == syscall.SIGKILL || s == syscall.SIGTERM
	n.notePeak()
	_ = n.cmd.Process.Signal(s)
}

// awaitExit waits until the process has ended. It returns false after the timeout.
func (n *node) awaitExit(timeout time.Duration) bool {
	n.mu.Lock()
	exited := n.exited
	n.mu.Unlock()
	select {
	case <-exited:
		return true
	case <-time.After(timeout):
		return false
	}
}

// text returns the last output of the process.
func (n *node) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.output.String()
}

// outputLines returns the number of lines that the process has written.
func (n *node) outputLines() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.output.mu.Lock()
	defer n.output.mu.Unlock()
	return n.output.lines
}

// memory returns the highest resident memory of the node so far, in bytes.
func (n *node) memory() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notePeak()
	return n.peak
}

// notePeak reads the highest resident memory of the running process. (The usage that the kernel returns for a process that has
// ended also contains the memory of its parent.) The caller holds mu.
func (n *node) notePeak() {
	if n.cmd != nil && n.cmd.Process != nil {
		n.peak = max(n.peak, status(n.cmd.Process.Pid, "VmHWM:"))
	}
}

// status returns a figure of /proc/PID/status in bytes; 0 if the process is gone.
func status(pid int, name string) int64 {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	_, after, _ := strings.Cut(string(text), name)
	var kilobytes int64
	_, _ = fmt.Sscan(after, &kilobytes)
	return kilobytes << 10
}

// probe is the HTTP client for /readyz. Its timeout is a little longer than the 2 s after which the server gives up on its store.
var probe = &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ready returns the status of /readyz, and 0 if the node does not respond.
func (n *node) ready() int {
	response, err := probe.Get("http://" + n.addr + "/readyz")
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// tail keeps the last output of a process, because a server that logs an error for each request would fill the memory. It counts
// the lines.
type tail struct {
	mu    sync.Mutex
	text  []byte // guarded by mu
	lines int    // guarded by mu
}

// maxTail is the size of the kept output: enough for the traces of all goroutines.
const maxTail = 256 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines += bytes.Count(b, []byte("\n"))
	if t.text = append(t.text, b...); len(t.text) > 2*maxTail {
		t.text = append(t.text[:0], t.text[len(t.text)-maxTail:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
