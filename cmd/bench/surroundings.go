package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"parley/cmd/internal/child"
	"parley/cmd/parley/bench"
)

// adminKey is the declared API key of the servers under test.
const adminKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// subject is one server that a row measures.
type subject struct {
	name   string // the heading of the column
	store  string // embedded, redis, or "" for the bare pipe
	binary string // path of the server's binary
	label  string // name of the file for benchstat, without .txt
}

// lab starts processes. tool is the binary of this checkout, which has the load generator, the model and the pipe.
type lab struct {
	tool        string
	dir         string
	serverCores string // of the server: a list for taskset; "" for any
	clientCores string // of the load generator, the model and Redis
	repeated    int    // number of measurements that were repeated
}

// process is a process of a measurement.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// start starts a command on some cores. Its standard error goes to errs.
func (l *lab) start(cores string, env []string, out io.Writer, errs io.Writer, name string, args ...string) (*process, error) {
	if cores != "" {
		args = append([]string{"-c", cores, name}, args...)
		name = "taskset"
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.dir, out, errs
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir}, env...)
	c := &process{cmd: cmd, exited: make(chan struct{})}
	return c, child.Start(cmd, func() { close(c.exited) })
}

// stop ends a process, and kills it if it does not end in 5 s. A killed server loses nothing that matters, because its store is
// deleted.
func (c *process) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(5 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}

// startTimeout is the longest wait for the first output of a process.
const startTimeout = 30 * time.Second

// startAndFind starts a process, and returns the first match of a pattern's group in its standard output.
func (l *lab) startAndFind(pattern *regexp.Regexp, cores string, env []string, name string, args ...string) (*process, string, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	var errs bytes.Buffer
	c, err := l.start(cores, env, writer, &errs, name, args...)
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return nil, "", err
	}
	found := make(chan string, 1)
	go func() {
		defer reader.Close()
		defer close(found)
		for lines := bufio.NewScanner(reader); lines.Scan(); { // to the end, so that the process can write
			if match := pattern.FindStringSubmatch(lines.Text()); match != nil {
				select {
				case found <- match[1]:
				default:
				}
			}
		}
	}()
	select {
	case text, ok := <-found:
		if ok {
			return c, text, nil
		}
		<-c.exited
		return nil, "", fmt.Errorf("%s %s ended before it was ready: %s", filepath.Base(name), strings.Join(args, " "), errs.String())
	case <-time.After(startTimeout):
		c.stop()
		return nil, "", fmt.Errorf("%s %s is not ready after %s", filepath.Base(name), strings.Join(args, " "), startTimeout)
	}
}

var (
	modelLine = regexp.MustCompile(`^model (\S+)`)
	pipeLine  = regexp.MustCompile(`^pipe (\S+)`)
	pageLine  = regexp.MustCompile(`^ +page +(http://\S+)/$`)
)

// measurement is a running subject.
type measurement struct {
	children []*process // in the order of their starts
	url      string
	pid      int
	redis    string // host:port; "" for none
	dir      string
}

func (m *measurement) stop() {
	for i := len(m.children) - 1; i >= 0; i-- {
		m.children[i].stop()
	}
	_ = os.RemoveAll(m.dir)
}

// begin starts a subject with all that it needs. The server uses n cores.
func (l *lab) begin(s subject, n int) (m *measurement, err error) {
	m = &measurement{}
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	if m.dir, err = os.MkdirTemp(l.dir, "store-"); err != nil {
		return nil, err
	}
	model, modelURL, err := l.startAndFind(modelLine, l.clientCores, nil, l.tool, "bench", "model")
	if err != nil {
		return nil, err
	}
	m.children = append(m.children, model)
	env := []string{"OPENAI_BASE_URL=" + modelURL, "PARLEY_MODEL=scripted", "PARLEY_ADDR=127.0.0.1:0", "PARLEY_ADMIN_KEY=" + adminKey,
		"PARLEY_TIERS=" + bench.GenerousTiers, "PARLEY_LOG_LEVEL=warn", fmt.Sprint("GOMAXPROCS=", n)}
	args, line := []string{"serve"}, pageLine
	switch s.store {
	case "":
		args, line = []string{"bench", "pipe"}, pipeLine
	case "embedded":
		env = append(env, "PARLEY_STORE=file:"+filepath.Join(m.dir, "parley.db"))
	default:
		redis, address, err := l.startRedis(m.dir)
		if err != nil {
			return nil, err
		}
		m.children = append(m.children, redis)
		m.redis = address
		env = append(env, "PARLEY_STORE=redis://"+address+"?timeout=30s") // a busy machine gives no 503
	}
	server, url, err := l.startAndFind(line, l.coresFor(n), env, s.binary, args...)
	if err != nil {
		return nil, err
	}
	m.children = append(m.children, server)
	m.url, m.pid = url, server.cmd.Process.Pid
	return m, nil
}

// startRedis starts a Redis server without persistence.
func (l *lab) startRedis(dir string) (*process, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
	ready := regexp.MustCompile(`(Ready to accept connections)`)
	c, _, err := l.startAndFind(ready, l.clientCores, nil, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", dir)
	return c, address, err
}

// settle is the pause between the start of a server and the first reading of its memory.
const settle = time.Second

// measured is the report of a run, and the resident memory of the server before the run.
type measured struct {
	*bench.Report
	Start int64 `json:"residentAtStart"` // resident memory of the server before its first request, in bytes
}

// coresFor returns the cores of a server that uses n cores.
func (l *lab) coresFor(n int) string {
	if n > 1 && l.serverCores != "" {
		return l.serverCores + "," + l.clientCores
	}
	return l.serverCores
}

// measure starts a subject on n cores, and runs `parley bench` with args against it. It decodes the output into result, and
// returns the server's resident memory before the run. It repeats a failed measurement once. Otherwise, one failed turn would
// cost the results of all earlier rounds.
func (l *lab) measure(ctx context.Context, s subject, n int, progress io.Writer, args []string, result any) (start int64, err error) {
	if start, err = l.measureOnce(ctx, s, n, args, result); err == nil || ctx.Err() != nil {
		return start, err
	}
	fmt.Fprintf(progress, "          once more, because it failed: %v\n", err)
	l.repeated++
	return l.measureOnce(ctx, s, n, args, result)
}

func (l *lab) measureOnce(ctx context.Context, s subject, n int, args []string, result any) (start int64, err error) {
	m, err := l.begin(s, n)
	if err != nil {
		return 0, err
	}
	defer m.stop()
	time.Sleep(settle)
	start = resident(m.pid)
	args = append(append([]string{"bench"}, args...), "--json", "--keep", "--pid", strconv.Itoa(m.pid))
	if m.redis != "" {
		args = append(args, "--redis", m.redis)
	}
	var out, errs bytes.Buffer
	load, err := l.start(l.clientCores, []string{"PARLEY=" + m.url, "KEY=" + adminKey}, &out, &errs, l.tool, args...)
	if err != nil {
		return 0, err
	}
	select {
	case <-load.exited:
	case <-ctx.Done():
		load.stop()
		return 0, ctx.Err()
	}
	if code := load.cmd.ProcessState.ExitCode(); code != 0 {
		return 0, fmt.Errorf("%s: parley %s: %s", s.name, strings.Join(args, " "), lastLine(errs.String()))
	}
	return start, json.Unmarshal(out.Bytes(), result)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// resident returns the resident memory of a process in bytes; 0 if it cannot be read.
func resident(pid int) int64 {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	var kilobytes int64
	_, _ = fmt.Sscan(after, &kilobytes)
	return kilobytes << 10
}

// build builds parley from this checkout.
func build(dir string) (string, error) {
	path := filepath.Join(dir, "parley")
	if output, err := exec.Command("go", "build", "-o", path, "parley/cmd/parley").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return path, nil
}

// coldBuild builds parley with an empty cache, and returns the CPU time of the compiler and the linker.
func (l *lab) coldBuild(errs io.Writer) (time.Duration, error) {
	fmt.Fprintf(errs, "%s  build without a cache\n", time.Now().Format(time.TimeOnly))
	build := exec.Command("go", "build", "-o", filepath.Join(l.dir, "cold"), "parley/cmd/parley")
	build.Env = append(os.Environ(), "GOCACHE="+filepath.Join(l.dir, "cache"))
	if output, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, output)
	}
	return build.ProcessState.UserTime() + build.ProcessState.SystemTime(), nil
}

// checkCores returns an error if processes cannot be bound to the cores.
func checkCores(cores ...string) error {
	if _, err := exec.LookPath("taskset"); err != nil {
		return errors.New("taskset is not installed (package util-linux): install it, or use --cores none")
	}
	for _, list := range cores {
		if output, err := exec.Command("taskset", "-c", list, "true").CombinedOutput(); err != nil {
			return fmt.Errorf("--cores: cannot use %q: %s", list, bytes.TrimSpace(output))
		}
	}
	return nil
}
