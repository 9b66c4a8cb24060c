// Package redistest starts real Redis servers for tests: alone, as a Cluster, under Sentinels, and behind a proxy that
// injects faults. All of them run on loopback, keep what they keep in the test's directory, and are gone after the test.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to start, or a command to answer. It is never waited for in vain by one
// that is right.
const patience = 20 * time.Second

// Server is a redis-server process. Its methods are for the goroutine of the test.
type Server struct {
	URL  string // of the store
	Addr string // host:port

	t     testing.TB
	dir   string
	args  []string
	clock *clock // nil: the machine's
	cmd   *exec.Cmd
	done  chan struct{} // closed when the process has ended
}

// Single starts a server. args are options of redis-server, such as "--appendonly", "yes"; unless they say otherwise,
// nothing is kept over a restart.
func Single(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, t.TempDir(), args...)
	t.Cleanup(s.Kill)
	s.start()
	return s
}

// SharedServer is a server for all tests of a binary.
type SharedServer struct {
	args   []string // static
	mu     sync.Mutex
	server *Server // guarded by mu; nil until a test needs it
	dir    string  // guarded by mu
}

// Shared returns a server, with these options of redis-server, that starts with the first test that needs it. TestMain kills
// it.
func Shared(args ...string) *SharedServer { return &SharedServer{args: args} }

// Start starts the server if it does not run yet, and returns the URL of its store. It may be called from any goroutine.
func (s *SharedServer) Start(t testing.TB) string { return s.Server(t).URL }

// Server is Start for a test that wants more than the URL. It must not harm the server.
func (s *SharedServer) Server(t testing.TB) *Server {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		dir, err := os.MkdirTemp("", "parley-redis-*")
		if err != nil {
			t.Fatal(err)
		}
		s.dir = dir
		s.server = newServer(t, dir, s.args...)
		s.server.start()
	}
	shared := *s.server
	shared.t = t
	return &shared
}

// Kill ends the server, if it ever ran, and removes what it left.
func (s *SharedServer) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Kill()
		_ = os.RemoveAll(s.dir)
	}
}

// newServer returns a server with a port of its own that does not run yet. Whoever starts it kills it.
func newServer(t testing.TB, dir string, args ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no redis-server is started")
	}
	port := freePort(t)
	s := &Server{
		t: t, Addr: net.JoinHostPort("127.0.0.1", port), dir: dir,
		args: append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, args...),
	}
	s.URL = "redis://" + s.Addr
	return s
}

// freePort returns a port that the system says is free.
func freePort(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// start starts the process and waits until it answers.
func (s *Server) start() {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatal("redis-server is needed: make needs")
	}
	args := append([]string{"--dir", s.dir, "--logfile", filepath.Join(s.dir, "log")}, s.args...)
	if config := filepath.Join(s.dir, "sentinel.conf"); exists(config) {
		args = []string{config, "--sentinel"}
	}
	s.cmd = exec.Command(path, args...)
	if s.clock != nil {
		s.cmd.Env = s.clock.environment()
	}
	// The kernel kills the server when the thread that started it ends, so it does not outlive this process, however that ends.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	done, cmd, started := make(chan struct{}), s.cmd, make(chan error)
	s.done = done
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was killed
			close(done)
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.await("it does not answer", func() bool {
		reply := s.try("PING")
		return strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH")
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Kill ends the process with SIGKILL and waits for its end. It is no error if it has ended already.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	<-s.done
}

// Stop has the process stand still, Cont go on.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont has the process go on after Stop.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal os.Signal) {
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("%s to redis-server: %v", signal, err)
	}
}

// Restart starts the server again on its port, after a Kill.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// BreakSaving takes the server's directory away, so that it cannot save, and refuses to write for as long as it is to save.
func (s *Server) BreakSaving() {
	s.t.Helper()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Fatal(err)
	}
	s.Do("CONFIG", "SET", "save", "3600 1")
	s.Do("BGSAVE")
	s.await("it can still save", func() bool {
		return strings.Contains(s.try("INFO", "persistence"), "rdb_last_bgsave_status:err")
	})
}

// AwaitMaster waits until the server, a replica, follows its master.
func (s *Server) AwaitMaster() {
	s.t.Helper()
	s.await("it does not replicate", func() bool { return strings.Contains(s.try("INFO", "replication"), "master_link_status:up") })
}

// AwaitReplica waits until a replica has all that the server has been told so far.
func (s *Server) AwaitReplica() {
	s.t.Helper()
	s.await("no replica follows it", func() bool {
		s.try("PUBLISH", "nobody", "") // of what this connection writes, it is waited for
		return strings.Contains(s.try("INFO", "replication"), "state=online") && strings.HasPrefix(s.try("WAIT", "1", "200"), ":1")
	})
}

// Do sends a command and returns the reply: as it is written, for one line; the text, for a string. An error fails
// the test.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	reply := s.try(args...)
	if reply == "" || strings.HasPrefix(reply, "-") {
		s.t.Fatalf("redis: %s: %q", args[0], reply)
	}
	return reply
}

// try sends a command and returns the reply; "" if none came.
func (s *Server) try(args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := conn.Write([]byte(request.String())); err != nil {
		return ""
	}
	return readReply(bufio.NewReader(conn))
}

// readReply reads a reply; those within an array are joined by spaces.
func readReply(r *bufio.Reader) string {
	line, err := r.ReadString('\n')
	if err != nil {
		return ""
	}
	line = strings.TrimRight(line, "\r\n")
	var n int
	_, _ = fmt.Sscanf(line[1:], "%d", &n)
	switch {
	case line[0] == '$' && n >= 0:
		text := make([]byte, n+2)
		for read := 0; read < len(text); {
			m, err := r.Read(text[read:])
			if err != nil {
				return ""
			}
			read += m
		}
		return string(text[:n])
	case line[0] == '*':
		var all []string
		for range n {
			all = append(all, readReply(r))
		}
		return strings.Join(all, " ")
	}
	return line
}

// await asks again and again until what is asked is true, and fails the test if that is never so.
func (s *Server) await(complaint string, ready func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-s.done:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("redis-server %s: it has ended: %s", s.Addr, log)
		case <-ctx.Done():
			s.t.Fatalf("redis-server %s: %s", s.Addr, complaint)
		}
	}
}

// Contents returns all that database 0 holds: by the name of each key, its value as DUMP has it. What has expired is removed
// by this at the latest. Names with spaces are not understood. With "--rdbcompression", "no", texts stand in the values as
// they are.
func (s *Server) Contents() map[string]string {
	s.t.Helper()
	contents := make(map[string]string)
	for cursor := "0"; ; {
		page := strings.Fields(s.Do("SCAN", cursor, "COUNT", "1000"))
		for _, key := range page[1:] {
			if value := s.Do("DUMP", key); value != "$-1" {
				contents[key] = value
			}
		}
		if cursor = page[0]; cursor == "0" {
			return contents
		}
	}
}
