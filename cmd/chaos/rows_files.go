package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"parley/cmd/chaos/history"
)

// goneCodes are the error codes of a store that has lost data.
var goneCodes = []string{"session_not_found", "message_not_found"}

func fileRows() []*row {
	return []*row{
		{
			name: "store-damaged", fault: "the file is overwritten or truncated, then the server starts",
			where: "embedded store", lossy: true, allowed: goneCodes, try: damagedAtStart, short: true,
		},
		{
			name: "store-rots", fault: "the file is overwritten or truncated under the server", where: "embedded store",
			lossy: true, allowed: goneCodes, try: damagedWhileRunning, short: true,
		},
		{
			name: "disk-full", fault: "the disk is full for 8 s", where: "embedded store on a small file system",
			try: diskFull, short: true,
		},
		{
			name: "file-unlinked", fault: "the file is unlinked under the server", where: "embedded store",
			lossy: true, allowed: goneCodes, try: unlinked, short: true,
		},
	}
}

// copies is the number of damaged copies of the store in a try. The try starts a server on each copy.
const copies = 12

// damagedAtStart fills a store, and starts a server on damaged copies. Each start must either fail with an error that names the
// store, or serve only unaltered text.
func damagedAtStart(w *world) {
	dir := w.TempDir()
	n := w.embedded(dir)
	w.load()
	time.Sleep(4 * time.Second)
	w.finish()
	n.kill()
	for range w.scaled(copies, 4) {
		damaged := w.TempDir()
		if err := copyStore(dir, damaged); err != nil {
			w.Fatal(err)
		}
		what := rot(damaged, w.random)
		w.say("schedule: %s", what)
		w.startDamaged(damaged, what)
	}
}

// startDamaged starts a server on a damaged store. If it starts, startDamaged reads all sessions, and checks what it gets.
func (w *world) startDamaged(dir, what string) {
	n := newNode(w, dir, w.environment("file:"+storeFile)...)
	w.Cleanup(n.kill)
	defer n.kill()
	if !n.launch() {
		text := n.text()
		if crashed(text) || !strings.Contains(text, storeFile) {
			w.broken(history.Running, "%s: the start fails without an error that names the file: %s", what, reason(text))
		}
		return
	}
	w.rereadFrom(n, what)
}

// crashed reports whether the output of a server has the trace of a crash.
func crashed(text string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(text, sign) })
}

// rereadFrom reads all sessions from a node, once, and checks them against what the clients saw before.
func (w *world) rereadFrom(n *node, what string) {
	reader := newRecord()
	a := newAPI(w.scene, "http://"+n.addr, reader)
	w.record.mu.Lock()
	h, sessions := w.record.h, w.record.sessions
	w.record.mu.Unlock()
	h.Requests, h.Crashes, h.Views, h.Reads, h.Stored = nil, nil, nil, nil, nil
	for _, id := range sessions {
		if s, ok := readSession(id, func(path string) *reply { return a.call("GET", path, nil, "", soon) }); ok {
			h.Stored = append(h.Stored, s)
		}
	}
	h.Requests, h.Crashes = reader.h.Requests, reader.h.Crashes
	h.Model, h.Lossy, h.Allowed = w.model.answers(), true, w.row.allowed
	for _, v := range history.Check(h) {
		w.broken(v.Promise, "%s: %s", what, v.About)
	}
}

// damagedWhileRunning damages the files of a running server. The server may refuse requests, but it may neither crash nor serve
// an altered text, also after another start.
func damagedWhileRunning(w *world) {
	dir := w.TempDir()
	n := w.embedded(dir)
	w.load()
	time.Sleep(3 * time.Second)
	var all []string
	for range 3 {
		what := rot(dir, w.random)
		w.say("schedule: %s", what)
		all = append(all, what)
		time.Sleep(w.between(300*time.Millisecond, time.Second))
	}
	w.giveUp()
	w.finish()
	n.kill()
	w.startDamaged(dir, strings.Join(all, ", "))
}

// diskSize is the size of the small file system: enough for the store, and small enough to be filled quickly.
const diskSize = 64 << 20

// smallDisk mounts a small file system in memory. It skips the try if this process may not mount.
func (w *world) smallDisk() string {
	dir := w.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		w.Skipf("mounting a small file system needs more rights: %v", err)
	}
	w.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill writes a file until the disk is full.
func fill(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := file.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return nil
}

const (
	// notReady is the time in which /readyz must report a store that cannot write, and full is the time for which the
	// disk stays full.
	notReady, full = 5 * time.Second, 8 * time.Second
	// linesWhileFull bounds the log: one line a minute for each kind of failure, not one for each refused request.
	linesWhileFull = 100
)

// diskFull fills the disk under load. Writes must be refused in time, a deletion must succeed, and writes must succeed
// again when there is room.
func diskFull(w *world) {
	dir := w.smallDisk()
	n := w.embedded(dir)
	doomed := w.createSession()
	var lines int
	var since time.Time
	w.underLoad([]step{
		{w.between(300*time.Millisecond, time.Second), "fill the disk", func() {
			lines, since = n.outputLines(), time.Now()
			if err := fill(dir); err != nil {
				w.Fatal(err)
			}
			w.writeUntilRefused()
		}},
		{0, "wait for /readyz", func() { w.expectNotReady(n) }},
		{0, "delete", func() {
			if a := w.api.call("DELETE", "/v1/sessions/"+doomed, nil, "", soon); a.status != 200 {
				w.broken("a full disk allows deletions", "DELETE got %d %s", a.status, a.Error.Code)
			}
		}},
		{full, "remove the ballast", func() {
			if grown := n.outputLines() - lines; grown > linesWhileFull {
				w.broken("the log is bounded", "%d lines in %v", grown, time.Since(since).Round(time.Second))
			}
			_ = os.Remove(filepath.Join(dir, "ballast"))
		}},
	})
	w.expectQuickRefusals(since, refused)
}

// writeUntilRefused writes until the server refuses a write, because a store may have room inside its files.
func (w *world) writeUntilRefused() {
	filler := map[string]string{"filler": strings.Repeat("x", 15<<10)} // a little less than the maximum of metadata
	body := map[string]any{"userId": user, "metadata": filler}
	_, ok := eventually(20*time.Second, func() bool {
		for range 100 {
			if w.api.call("POST", "/v1/sessions", body, "", soon).status != 200 {
				return true
			}
		}
		return false
	})
	if !ok {
		w.Fatal("the server still writes although the disk is full")
	}
}

// expectNotReady waits until /readyz fails.
func (w *world) expectNotReady(n *node) {
	if took, ok := eventually(notReady+w.margin, func() bool { return n.ready() != 200 }); !ok {
		w.broken("/readyz tells whether writes succeed", "/readyz is still 200 after %v", took.Round(time.Second))
	}
}

// expectQuickRefusals checks that each request after since that got 503 or 409 took at most the duration most. So a send must not
// wait in the queue behind a reply that has ended but cannot be stored.
func (w *world) expectQuickRefusals(since time.Time, most time.Duration) {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	for _, q := range w.record.h.Requests {
		if q.Begun.After(since) && (q.Status == 503 || q.Status == 409) && q.Took > most+w.margin {
			w.broken("a refusal comes in time", "%s got %d after %v", q.What, q.Status, q.Took.Round(time.Millisecond))
		}
	}
}

// unlinked removes the files of a running server. The server must notice it and refuse writes, because they would be lost.
func unlinked(w *world) {
	dir := w.TempDir()
	n := w.embedded(dir)
	w.load()
	time.Sleep(2 * time.Second)
	w.say("schedule: unlink %v", files(dir))
	removeStore(dir)
	w.expectNotReady(n)
	a := w.api.call("POST", "/v1/sessions", map[string]any{"userId": user}, "", soon)
	if a.status != 503 {
		w.broken("a write that would be lost gets 503", "POST /v1/sessions got %d %s", a.status, a.Error.Code)
	}
	w.giveUp()
	w.finish()
}
