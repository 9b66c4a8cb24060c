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

// clockShim is the source of a library that is preloaded into redis-server, so that a test can set its clock. (libfaketime makes
// redis-server hang.)
//
//go:embed shim/clock.c
var clockShim []byte

// clock is the clock of a server, which differs from the machine's clock.
type clock struct {
	library string        // path of the compiled shim
	file    string        // path of the file that the shim maps; it holds ahead
	ahead   time.Duration // difference to the machine's clock; negative if the server's clock is behind
}

// SingleWithClock starts a server like Single. Advance sets its clock; the clock of this process does not change.
func SingleWithClock(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, t.TempDir(), args...)
	s.clock = newClock(t, s.dir)
	t.Cleanup(s.Kill)
	s.start()
	return s
}

// newClock compiles the shim in dir and returns a clock that is 0 ahead.
func newClock(t testing.TB, dir string) *clock {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal("gcc is not installed: run make needs")
	}
	source := filepath.Join(dir, "clock.c")
	c := &clock{library: filepath.Join(dir, "clock.so"), file: filepath.Join(dir, "clock")}
	if err := os.WriteFile(source, clockShim, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", c.library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, output)
	}
	c.write(t)
	return c
}

// write passes ahead to the server.
func (c *clock) write(t testing.TB) {
	t.Helper()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600) // not truncated, because the server maps it
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead)), 0); err != nil {
		t.Fatal(err)
	}
}

// environment returns the environment for a process with this clock.
func (c *clock) environment() []string {
	return append(os.Environ(), "LD_PRELOAD="+c.library, "PARLEY_TEST_CLOCK="+c.file)
}

// Advance sets the clock of a server of SingleWithClock ahead by d, or back if d is negative. The next command sees the new time.
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatal("Advance needs a server of SingleWithClock")
	}
	s.clock.ahead += d
	s.clock.write(s.t)
}

// Now returns the time by the server's clock.
func (s *Server) Now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return time.Now().Add(s.clock.ahead)
}
