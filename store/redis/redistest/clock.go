package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// clockShim is preloaded into a redis-server whose clock a test sets ahead. (libfaketime, which would do, hangs it.)
//
//go:embed shim/clock.c
var clockShim []byte

// clock is the clock of a server: the machine's, set ahead.
type clock struct {
	library string // the shim, as it is preloaded
	file    string // what the shim maps
	ahead   time.Duration
}

// SingleWithClock is Single, with a clock that Advance sets ahead. That of this process stays as it is.
func SingleWithClock(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, t.TempDir(), args...)
	s.clock = newClock(t, s.dir)
	t.Cleanup(s.Kill)
	s.start()
	return s
}

// newClock compiles the shim into a directory.
func newClock(t testing.TB, dir string) *clock {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal("gcc is needed: make needs")
	}
	source := filepath.Join(dir, "clock.c")
	c := &clock{library: filepath.Join(dir, "clock.so"), file: filepath.Join(dir, "clock")}
	if err := os.WriteFile(source, clockShim, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", c.library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, said)
	}
	c.write(t)
	return c
}

// write tells the server.
func (c *clock) write(t testing.TB) {
	t.Helper()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600) // not cut first: it is mapped
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead)), 0); err != nil {
		t.Fatal(err)
	}
}

// environment is what a process with this clock is started with.
func (c *clock) environment() []string {
	return append(os.Environ(), "LD_PRELOAD="+c.library, "PARLEY_TEST_CLOCK="+c.file)
}

// Advance sets the clock of a server of SingleWithClock ahead, at once. What the next command sees is later by that much.
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatal("the server has the machine's clock")
	}
	s.clock.ahead += d
	s.clock.write(s.t)
}

// Now is the server's clock. Where that was never set ahead, it is the machine's.
func (s *Server) Now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return time.Now().Add(s.clock.ahead)
}
