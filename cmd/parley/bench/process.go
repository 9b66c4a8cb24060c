package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// This file reads figures of processes from /proc, which only Linux has. On other systems the figures are missing.

// process is a process on this machine.
type process struct {
	pid  int
	bolt string // the file of the process's embedded store; "" for none
}

// usage holds the counts of a process since its start, and its memory.
type usage struct {
	cpu          time.Duration // user and system
	resident     int64         // bytes
	written      int64         // bytes that the kernel had to write to disks for the process
	writeCalls   int64         // system calls that write, to files and sockets
	transactions int64         // committed transactions of the embedded store
}

// findProcess returns the server's process, or nil if it is unknown or on another machine.
func findProcess(target Target) (*process, error) {
	pid := target.PID
	if pid == 0 {
		pid = listener(target.URL)
	}
	if pid == 0 {
		return nil, nil
	}
	p := &process{pid: pid}
	_, err := os.Stat(p.file("stat")) // if pid is too large for an id, cpuTime would read another process
	if err == nil {
		_, err = p.read()
	}
	if err != nil {
		return nil, fmt.Errorf("--pid: there is no process %d whose figures can be read: %w", pid, err)
	}
	p.bolt = p.findBolt()
	return p, nil
}

// read reads the figures of a process.
func (p *process) read() (u usage, err error) {
	if u.cpu, err = cpuTime(p.pid); err != nil {
		return u, err
	}
	u.resident = p.figure("status", "VmRSS:") << 10
	u.written, u.writeCalls = p.figure("io", "write_bytes:"), p.figure("io", "syscw:")
	u.transactions = transactions(p.bolt)
	return u, nil
}

func (p *process) file(name string) string { return filepath.Join("/proc", strconv.Itoa(p.pid), name) }

// figure returns the number after a name in a file of /proc/PID; 0 if it cannot be read.
func (p *process) figure(file, name string) (n int64) {
	text, _ := os.ReadFile(p.file(file))
	if i := bytes.Index(text, []byte("\n"+name)); i >= 0 {
		_, _ = fmt.Sscan(string(text[i+1+len(name):]), &n)
	}
	return n
}

// listener returns the id of the process that listens on the port of a URL; 0 if there is none, or if
// the host is another machine.
func listener(address string) int {
	u, err := url.Parse(address)
	if err != nil || !isLocal(u.Hostname()) {
		return 0
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return 0
	}
	var sockets []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		sockets = append(sockets, listening(string(text), port)...)
	}
	return owner(sockets)
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	ips, err := net.LookupIP(host)
	if err != nil || len(ips) == 0 {
		return false
	}
	if ips[0].IsLoopback() {
		return true
	}
	addresses, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		return ok && network.IP.Equal(ips[0])
	})
}

// listening returns the sockets that listen on a port. text is a table of /proc/net. The sockets have the form of a link in
// /proc/PID/fd.
func listening(text string, port int) (sockets []string) {
	const local, state, inode, listen = 1, 3, 9, "0A"
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > inode && f[state] == listen && strings.HasSuffix(f[local], fmt.Sprintf(":%04X", port)) {
			sockets = append(sockets, "socket:["+f[inode]+"]")
		}
	}
	return sockets
}

// owner returns the id of a process that has one of the sockets open; 0 for none.
func owner(sockets []string) int {
	if len(sockets) == 0 {
		return 0
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && slices.Contains(sockets, target) {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			return pid
		}
	}
	return 0
}

// boltMagic is the number at the beginning of a meta page of bbolt. A file has two meta pages.
const boltMagic = 0xED0CDAED

// findBolt returns the file of the process's embedded store; "" for none.
func (p *process) findBolt() string {
	links, _ := filepath.Glob(p.file("fd/*"))
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "/") && transactions(target) > 0 {
			return target
		}
	}
	return ""
}

// transactions returns the number of transactions that were ever committed to a file of bbolt; 0 if path is no such file. Each of
// them took two calls of fdatasync: for the data, and for the meta page.
func transactions(path string) (newest int64) {
	const pageHeader, magicAt, txidAt, least = 16, 16, 64, 72
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	for page := range int64(2) {
		head := make([]byte, least)
		if _, err := file.ReadAt(head, page*int64(os.Getpagesize())); err != nil || binary.NativeEndian.Uint32(head[magicAt:]) != boltMagic {
			return newest
		}
		newest = max(newest, int64(binary.NativeEndian.Uint64(head[txidAt:])))
	}
	return newest
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
