// Package redistest starts real Redis servers for tests: single servers, a Cluster, or a master monitored by Sentinels. It also
// has proxies that inject faults. All servers run on loopback and store their data in temporary directories. A server ends with
// its test; TestMain must end a shared server. If the test binary dies by a panic, a timeout or a signal, the kernel kills all
// servers.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A test fails if a server does not reach an awaited state within timeout. Even on a busy machine with one core, only a server
// that hangs takes longer.
const timeout = time.Minute

// Server is a redis-server process. Its methods must be called from the goroutine of the test.
type Server struct {
	URL  string // URL of a store on this server, for redis.Open
	Addr string // host:port

	t     testing.TB
	dir   string   // directory of the server's data and log
	args  []string // options of redis-server
	clock *clock   // nil if the server uses the machine's clock
	cmd   *exec.Cmd
	done  chan struct{} // closed after the process has ended
}

// Patient is a query for the URL of a store. It lets a call wait for a minute. Tests that expect Redis to respond use it: with
// the default timeout, they would fail on a machine that is too busy to run Redis for two seconds.
const Patient = "?timeout=1m"

// Single starts a server. args are options of redis-server, for example "--appendonly", "yes". Without this option, a restart
// loses all data.
func Single(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, t.TempDir(), args...)
	t.Cleanup(s.Kill)
	s.start()
	return s
}

// SharedServer is a server that all tests of a test binary share.
type SharedServer struct {
	args   []string // static
	mu     sync.Mutex
	server *Server // guarded by mu; nil until the first Start
	dir    string  // guarded by mu
}

// Shared returns a server that starts when a test first calls Start or Server. TestMain must call Kill. args are options of
// redis-server.
func Shared(args ...string) *SharedServer { return &SharedServer{args: args} }

// Start starts the server if it is not running, and returns the URL of the store. It may be called from any goroutine.
func (s *SharedServer) Start(t testing.TB) string { return s.Server(t).URL }

// Server starts the server if it is not running, and returns the server. The test must not stop or break the server.
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

// Kill ends the server if it was started, and removes the server's directory.
func (s *SharedServer) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Kill()
		_ = os.RemoveAll(s.dir)
	}
}

// newServer returns a server with a free port. The server does not run yet: the caller must start it and kill it.
func newServer(t testing.TB, dir string, args ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no redis-server is started")
	}
	port := FreePort(t)
	s := &Server{
		t: t, Addr: net.JoinHostPort("127.0.0.1", port), dir: dir,
		args: append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, args...),
	}
	s.URL = "redis://" + s.Addr
	return s
}

// reserved holds a UDP socket on each port that FreePort has returned. No other test binary gets the port while this one runs.
var reserved sync.Map // by port

// FreePort returns a TCP port that no process listens on, and that no other call returns. It is below 32768, where the system's range
// for connections begins. So nothing takes the port before the server listens on it, or while the server restarts.
func FreePort(t testing.TB) string {
	t.Helper()
	const first, end, attempts = 10_000, 32_768, 100
	for range attempts {
		port := strconv.Itoa(first + rand.IntN(end-first))
		address := net.JoinHostPort("127.0.0.1", port)
		reservation, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		// Listening instead would occupy the port until the socket is closed in each process that starts at this moment.
		conn, err := net.Dial("tcp", address)
		if err != nil {
			reserved.Store(port, reservation)
			return port
		}
		_ = errors.Join(conn.Close(), reservation.Close())
	}
	t.Fatalf("%d random ports from %d to %d are in use", attempts, first, end-1)
	return ""
}

// start starts the process and waits until it replies to PING.
func (s *Server) start() {
	s.t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatal("redis-server is not installed: run make needs")
	}
	args := append([]string{"--dir", s.dir, "--logfile", filepath.Join(s.dir, "log")}, s.args...)
	if config := filepath.Join(s.dir, "sentinel.conf"); exists(config) {
		args = []string{config, "--sentinel"}
	}
	s.cmd = exec.Command(path, args...)
	if s.clock != nil {
		s.cmd.Env = s.clock.environment()
	}
	// The kernel kills the server when the thread that started the server ends. That thread waits for the end of the server. So
	// the thread ends first only if this process dies.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	done, cmd, started := make(chan struct{}), s.cmd, make(chan error)
	s.done = done
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the error only says that the server was killed
			close(done)
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.await("it does not reply", func() bool {
		reply := s.try("PING")
		return strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH")
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Kill ends the process with SIGKILL and waits for its end. Calling Kill twice is safe.
func (s *Server) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	<-s.done
}

// Stop suspends the process (SIGSTOP).
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont resumes the process after Stop.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal os.Signal) {
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("%s to redis-server: %v", signal, err)
	}
}

// Restart kills the server and starts it again on the same port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// BreakSaving removes the server's directory, so that the server cannot save its data. The server refuses writes until CONFIG SET
// save "" disables saving.
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

// AwaitMaster waits until the server is connected to its master. The server must be a replica.
func (s *Server) AwaitMaster() {
	s.t.Helper()
	s.await("it does not replicate", func() bool { return strings.Contains(s.try("INFO", "replication"), "master_link_status:up") })
}

// AwaitRole waits until the server has the role "master" or "slave".
func (s *Server) AwaitRole(role string) {
	s.t.Helper()
	s.await("it is not a "+role, func() bool { return strings.Contains(s.try("INFO", "replication"), "role:"+role) })
}

// AwaitReplica waits until a replica has received all earlier writes to the server.
func (s *Server) AwaitReplica() {
	s.t.Helper()
	s.await("it has no replica that is up to date", func() bool {
		s.try("PUBLISH", "nobody", "") // advances the replication offset, so that WAIT has something to wait for
		return strings.Contains(s.try("INFO", "replication"), "state=online") && strings.HasPrefix(s.try("WAIT", "1", "200"), ":1")
	})
}

// Do sends a command and returns the reply: the content of a string, or the elements of an array, joined by spaces. For other
// types, it returns the line that Redis sent, for example ":1". An error or an empty reply fails the test.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	reply := s.send(timeout, args...)
	if reply == "" || strings.HasPrefix(reply, "-") {
		s.t.Fatalf("redis: %s: %q", args[0], reply)
	}
	return reply
}

// try sends a command and returns the reply like send, if the reply arrives within 1 s.
func (s *Server) try(args ...string) string { return s.send(time.Second, args...) }

// send sends a command and returns the reply in the format of Do. If Redis returns an error, send returns the line of the error,
// which begins with "-". If no reply arrives in time, send returns "".
func (s *Server) send(timeout time.Duration, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
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

// readReply reads a reply and returns it in the format of Do.
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

// await calls ready until ready returns true. After timeout, it fails the test with complaint. If the server has ended, it fails
// the test with the server's log.
func (s *Server) await(complaint string, ready func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
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

// Contents returns the values of all keys in database 0, in the format of DUMP, by key. It also makes Redis remove expired keys.
// No key may contain a space. If the server runs with "--rdbcompression", "no", texts in the values are not compressed.
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
