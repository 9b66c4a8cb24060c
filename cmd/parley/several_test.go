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

// TestSamples_SeveralNodes runs the sample of the Redis guide. The test replaces the Redis, the ports, and the command, which is
// already built.
func TestSamples_SeveralNodes(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl")
	dir, model, redis := t.TempDir(), newWordsModel(t, time.Millisecond), redistest.Single(t)
	script := sample(t, redisGuide, "several nodes")
	for typed, replaced := range map[string]string{
		"make build\n": "",
		"redis-server --port 6390 --dir \"$(mktemp -d)\" \\\n  --appendonly yes --maxmemory-policy noeviction >/dev/null &\n": "",
		"until redis-cli -p 6390 ping; do sleep 0.1; done\n":                                                                  "",
		"redis://127.0.0.1:6390": redis.URL,
		"./parley":               parley(t),
		"127.0.0.1:8421":         freeAddress(t),
		"127.0.0.1:8422":         freeAddress(t),
	} {
		if !strings.Contains(script, typed) {
			t.Fatalf("the sample does not contain %q", typed)
		}
		script = strings.ReplaceAll(script, typed, replaced)
	}
	shell := exec.Command("bash", "-euo", "pipefail")
	shell.Stdin = strings.NewReader("trap 'kill $(jobs -p); wait' EXIT\n" + script)
	shell.Dir = dir
	shell.Env = append(model.env(), "PATH="+os.Getenv("PATH"), "HOME="+dir, raceOptions)
	prints(t, shell, `(?m)^event: message\.created$`, `(?m)^event: message\.completed$`, `"messageCount":2`)
}

// freeAddress returns a free address on loopback.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
