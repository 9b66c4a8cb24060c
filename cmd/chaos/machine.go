package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// about returns the sentence above the table: when, which commit, and on which machine.
func about(begun time.Time) string {
	return fmt.Sprintf("%s, %s of faults, commit `%s`, %d cores (%s), %s, Redis %s.", begun.UTC().Format(time.DateOnly),
		time.Since(begun).Round(time.Minute), commit(), runtime.NumCPU(), processor(), runtime.Version(), redisVersion())
}

// commit returns the commit of the checkout, with -dirty if files differ.
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// processor returns the name of the processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, after, ok := strings.Cut(string(text), "model name\t: ")
	if !ok {
		return runtime.GOARCH
	}
	name, _, _ := strings.Cut(after, "\n")
	return strings.Join(strings.Fields(name), " ")
}

// redisVersion returns the version of the installed Redis.
func redisVersion() string {
	text, _ := exec.Command("redis-server", "--version").Output()
	_, after, _ := strings.Cut(string(text), "v=")
	version, _, _ := strings.Cut(after, " ")
	return version
}
