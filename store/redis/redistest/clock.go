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

// clockShim is the C source of a library. redis-server preloads the library, so that a test can set the clock of the server.
// (libfaketime makes redis-server hang.)
//
//go:embed shim/clock.c
var clockShim []byte

// clock sets the clock of one server, which may differ from the machine's clock.
type clock struct {
	library string        // path of the compiled shim
	file    string        // path of the file from which the shim reads ahead
	ahead   time.Duration // the server's clock minus the machine's clock
}

// SingleWithClock starts a server like Single. Advance sets the server's clock. The clock of the test process does not change.
func SingleWithClock(t testing.TB, args ...string) *Server {
	t.Helper()
	s := newServer(t, t.TempDir(), args...)
	s.clock = newClock(t, s.dir)
	t.Cleanup(s.Kill)
	s.start()
	return s
}

// newClock compiles the shim in dir. It returns a clock that shows the machine's time.
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

// write stores ahead in the file, from which the server's shim reads it.
func (c *clock) write(t testing.TB) {
	t.Helper()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600) // without O_TRUNC, because the server maps the file
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead)), 0); err != nil {
		t.Fatal(err)
	}
}

// environment returns the environment variables for a server with this clock.
func (c *clock) environment() []string {
	return append(os.Environ(), "LD_PRELOAD="+c.library, "PARLEY_TEST_CLOCK="+c.file)
}

// Advance sets the server's clock ahead by d, or back if d is negative. The next command sees the new time. SingleWithClock must
// have started the server.
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
