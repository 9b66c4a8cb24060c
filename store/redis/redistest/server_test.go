package redistest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dyingTest is an environment variable that TestServer_DiesWithTestBinary sets for its second process. It says how the process
// dies: "panic" or "kill".
const dyingTest = "PARLEY_TEST_DYING"

// TestServer_DiesWithTestBinary runs this test binary again. The second process starts a server and dies without a clean-up: by a
// panic, like -test.timeout, or by SIGKILL, which "go test" sends to a test binary that hangs.
func TestServer_DiesWithTestBinary(t *testing.T) {
	if how := os.Getenv(dyingTest); how != "" {
		s := Single(t)
		fmt.Printf("\nredis-server %d\n", s.cmd.Process.Pid)
		if how == "panic" {
			go panic("a test binary that dies")
		}
		select {}
	}
	t.Parallel()
	for _, how := range []string{"panic", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestServer_DiesWithTestBinary$")
			cmd.Env = append(os.Environ(), dyingTest+"="+how)
			output, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			server := 0
			for lines := bufio.NewScanner(output); server == 0 && lines.Scan(); {
				if pid, ok := strings.CutPrefix(lines.Text(), "redis-server "); ok {
					server, _ = strconv.Atoi(pid)
				}
			}
			if how == "kill" {
				_ = cmd.Process.Kill()
			}
			if err := cmd.Wait(); err == nil || server == 0 {
				t.Fatalf("the test binary ended with the error %v; the process id of its server is %d", err, server)
			}
			for deadline := time.Now().Add(timeout); runs(server); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					_ = syscall.Kill(server, syscall.SIGKILL)
					t.Fatalf("redis-server %d has outlived its test binary", server)
				}
			}
		})
	}
}

func TestFreePort_ManyCalls_PortsDiffer(t *testing.T) {
	ports := make(map[string]bool)
	for range 500 { // without reservations, a port would almost certainly come twice
		port := FreePort(t)
		if ports[port] {
			t.Errorf("%s was returned twice", port)
		}
		ports[port] = true
	}
}

// runs reports whether the process with that id is running. A zombie does not count as running.
func runs(process int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(process) + "/stat")
	return err == nil && !strings.Contains(string(status), ") Z ")
}
