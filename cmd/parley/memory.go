package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
)

const (
	// memoryOfSend is the memory, in bytes, that maxInFlight plans for one send. A send that waits takes less than 40
	// KiB, with its connection. A live turn also has its prompt, its reply and a request to the model: 100 KiB of
	// resident memory with the simulated model.
	memoryOfSend = 128 << 10
	// mostInFlight bounds the default. If 10,000 sends end at the same time, the store needs some seconds to store all
	// endings. More sends would only wait longer.
	mostInFlight = 10_000
	// assumedMemory is the memory of a machine that does not report it. Only Linux reports it in /proc.
	assumedMemory = 4 << 30
)

// maxInFlight returns the maximum number of sends in flight: the configured number or, by default, as many as fit into
// half of the memory. The other half is for sockets, pages of history, caches, and garbage.
func (c *serve) maxInFlight() int {
	if c.MaxInflight > 0 {
		return c.MaxInflight
	}
	return int(max(1, min(memory("/")/2/memoryOfSend, mostInFlight)))
}

// memory returns the number of bytes that this process may use: the smallest of GOMEMLIMIT, the limit of its control
// group (v2), and the memory of the machine. root is the root of the file system, which tests replace.
func memory(root string) int64 {
	limit := min(debug.SetMemoryLimit(-1), memoryOfGroup(root), memoryOfMachine(root))
	if limit == math.MaxInt64 {
		return assumedMemory
	}
	return limit
}

// memoryOfGroup returns the memory limit of the control group of this process; math.MaxInt64 for none.
func memoryOfGroup(root string) int64 {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range bytes.Lines(groups) {
		if path, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::")); ok { // the line of version 2
			text, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", string(path), "memory.max"))
			return bytesOr(bytes.TrimSpace(text), 1) // "max" means no limit
		}
	}
	return math.MaxInt64
}

// memoryOfMachine returns the memory of the machine; math.MaxInt64 if it is unknown.
func memoryOfMachine(root string) int64 {
	info, _ := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	for line := range bytes.Lines(info) {
		if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == "MemTotal:" {
			return bytesOr(fields[1], 1<<10)
		}
	}
	return math.MaxInt64
}

// bytesOr returns a decimal number of units in bytes; math.MaxInt64 if text is no number greater than 0, or is too large.
func bytesOr(text []byte, unit int64) int64 {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return n * unit
}
