package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMemory_SmallestLimitApplies(t *testing.T) {
	t.Parallel()
	const machine = "MemFree:  1 kB\nMemTotal:       2097152 kB\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known":           {nil, assumedMemory},
		"the machine":                {map[string]string{"proc/meminfo": machine}, 2 << 30},
		"a control group":            {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "536870912\n"}, 512 << 20},
		"a control group, no limit":  {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 2 << 30},
		"a control group of v1 only": {map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/a\n"}, 2 << 30},
		"a malformed file":           {map[string]string{"proc/meminfo": "MemTotal: -7 kB\n"}, assumedMemory},
	} {
		root := t.TempDir()
		for path, text := range test.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memory(root); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
	if n := (&serve{}).maxInFlight(); n < 1 || n > mostInFlight {
		t.Errorf("the default is %d sends in flight", n)
	}
	if n := (&serve{MaxInflight: 77}).maxInFlight(); n != 77 {
		t.Errorf("a configured limit of 77 becomes %d", n)
	}
}

// TestServe_Idle_LoadsNoVocabulary reads how much memory a process allocates for its first message: at least the 2 MiB of a
// vocabulary. If the process had built its vocabulary before, the first message would take about 1 MB.
func TestServe_Idle_LoadsNoVocabulary(t *testing.T) {
	t.Parallel()
	const vocabulary = 2 << 20
	p := serveIn(t, t.TempDir(), newHeldModel(t, 1).env()...)
	if status, _, err := p.call("GET", "/readyz", nil); err != nil || status != http.StatusOK {
		t.Fatalf("/readyz: %d %v", status, err)
	}
	<-time.After(time.Second) // a vocabulary that the start builds in the background is complete
	idle := p.allocated()
	p.must("POST", "/v1/sessions/"+p.session()+"/messages", map[string]any{"content": "say 1 word"})
	n := p.allocated() - idle
	t.Logf("an idle process has allocated %.0f bytes, the first message another %.0f", idle, n)
	if n < vocabulary {
		t.Errorf("the first message allocated %.0f bytes: the idle process had a vocabulary", n)
	}
}

// allocated returns the number of bytes that the process has allocated on its heap since its start.
func (p *process) allocated() (bytes float64) {
	p.t.Helper()
	response, err := client.Get(p.url + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "go_memstats_alloc_bytes_total %g", &bytes); err == nil {
			return bytes
		}
	}
	p.t.Fatal("/metrics has no go_memstats_alloc_bytes_total")
	return 0
}
