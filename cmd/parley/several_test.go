package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"parley/store/redis/redistest"
)

// The test runs the sample of the Redis guide. In the sample, it replaces the Redis server, the ports, and ./parley, so that the
// sample runs the binary under test on free ports.
func TestSamples_SeveralNodes_ShareSession(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl")
	dir, model, redis := t.TempDir(), newWordsModel(t, time.Millisecond), redistest.Single(t)
	script := sample(t, redisGuide, "several nodes")
	for old, replacement := range map[string]string{
		"make build\n": "",
		"redis-server --port 6390 --dir \"$(mktemp -d)\" \\\n  --appendonly yes --maxmemory-policy noeviction >/dev/null &\n": "",
		"until redis-cli -p 6390 ping; do sleep 0.1; done\n":                                                                  "",
		"redis://127.0.0.1:6390": redis.URL + redistest.Patient,
		"./parley":               parley(t),
		"127.0.0.1:8421":         net.JoinHostPort("127.0.0.1", redistest.FreePort(t)),
		"127.0.0.1:8422":         net.JoinHostPort("127.0.0.1", redistest.FreePort(t)),
	} {
		if !strings.Contains(script, old) {
			t.Fatalf("the sample does not contain %q", old)
		}
		script = strings.ReplaceAll(script, old, replacement)
	}
	shell := exec.Command("bash", "-euo", "pipefail")
	shell.Stdin = strings.NewReader("trap 'kill $(jobs -p); wait' EXIT\n" + script)
	shell.Dir = dir
	shell.Env = append(model.env(), "PATH="+os.Getenv("PATH"), "HOME="+dir, raceOptions)
	prints(t, shell, `(?m)^event: message\.created$`, `(?m)^event: message\.completed$`, `"messageCount":2`)
}
