package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"parley/auth"
	"parley/conversation"
)

// These environment variables make onSmallDisk run its test in this process. diskEnv has the folder. limitEnv is set if no disk
// is mounted there, so that the test must limit the size of a file.
const (
	diskEnv  = "PARLEY_STORE_DISK"
	limitEnv = "PARLEY_STORE_DISK_LIMIT"
)

// diskSize is the size of the disk in bytes: room for the store, its reserves and a few thousand messages.
const diskSize = 24 << 20

// onSmallDisk runs a test on a file system of diskSize bytes, which only this test uses. The file system is mounted in a child
// process with a mount namespace of its own, so nothing is left mounted. In a container without the right to mount, a limit of
// the size of a file (RLIMIT_FSIZE) takes the place of the disk.
func onSmallDisk(t *testing.T, run func(t *testing.T, disk smallDisk)) {
	t.Helper()
	if dir := os.Getenv(diskEnv); dir != "" {
		run(t, newSmallDisk(t, dir))
		return
	}
	dir, args := t.TempDir(), []string{"-test.run", "^" + t.Name() + "$", "-test.v"}
	user := syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	for _, attr := range []syscall.SysProcAttr{{Cloneflags: syscall.CLONE_NEWNS}, user} {
		child := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c",
			fmt.Sprintf(`mount --make-rprivate / && mount -t tmpfs -o size=%d none "$0" || exit 99; exec "$@"`, diskSize), dir, os.Args[0]}, args...)...)
		child.SysProcAttr = &attr
		child.Env = append(os.Environ(), diskEnv+"="+dir)
		out, err := child.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 99 || errors.Is(err, syscall.EPERM) {
			t.Logf("no file system can be mounted: %v %s", err, out)
			continue
		}
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], args...)
	child.Env = append(os.Environ(), diskEnv+"="+dir, limitEnv+"=1")
	out, err := child.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Fatal(err)
	}
}

type smallDisk struct {
	t     *testing.T
	dir   string
	limit *atomic.Uint64 // size of the largest file; nil on a mounted disk
}

func newSmallDisk(t *testing.T, dir string) smallDisk {
	d := smallDisk{t, dir, nil}
	if os.Getenv(limitEnv) != "" {
		d.limit = new(atomic.Uint64)
		signal.Ignore(syscall.SIGXFSZ)
		d.setLimit(1 << 30)
	}
	return d
}

func (d smallDisk) setLimit(size uint64) {
	d.t.Helper()
	var limit syscall.Rlimit
	must(d.t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	limit.Cur = size
	must(d.t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	d.limit.Store(size)
}

// allocate fails for blocks above the limit, as on a full disk. The kernel would allocate them, although a write there
// fails.
func (d smallDisk) allocate(f *os.File, from, n int64) error {
	if d.limit != nil && uint64(from+n) > d.limit.Load() {
		return syscall.EFBIG
	}
	return allocate(f, from, n)
}

func (d smallDisk) path() string { return filepath.Join(d.dir, "parley.db") }

// fill writes a file until the disk is full. The returned function removes the file.
func (d smallDisk) fill() (empty func()) {
	d.t.Helper()
	if d.limit != nil {
		d.setLimit(diskSize / 2)
		return func() { d.setLimit(1 << 30) }
	}
	name := filepath.Join(d.dir, "other")
	file, err := os.Create(name)
	must(d.t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("filling the disk: %v", err)
	}
	must(d.t, file.Close())
	return func() { must(d.t, os.Remove(name)) }
}

func openOnDisk(d smallDisk) *Store {
	d.t.Helper()
	s, err := Open(d.path(), Options{allocate: d.allocate})
	must(d.t, err)
	d.t.Cleanup(func() { closeStore(d.t, s) })
	return s
}

// growUntilFull runs turns with long messages in new sessions until the store refuses one, and returns the sessions.
func growUntilFull(t *testing.T, s *Store) (sessions []string) {
	t.Helper()
	for range 10_000 {
		made, err := s.CreateSession(t.Context(), somebody, conversation.NewSession{
			UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig,
		})
		if err == nil {
			sessions = append(sessions, made.Session.ID)
			var begun conversation.TurnStart
			begun, err = s.BeginTurn(t.Context(), somebody, newTurn(made.Session.ID, strings.Repeat("hello ", 2000)))
			if err == nil {
				_, err = s.EndTurn(t.Context(), begun.Key, completed(strings.Repeat("good day ", 2000)), conversation.Timing{})
			}
		}
		if errors.Is(err, conversation.ErrStoreFull) {
			return sessions
		}
		must(t, err)
	}
	t.Fatal("the disk was never full")
	return nil
}

func TestDiskFull_DeletionsAndEndsWork_SendsRefused(t *testing.T) {
	t.Parallel()
	onSmallDisk(t, func(t *testing.T, disk smallDisk) {
		s := openOnDisk(disk)
		key, err := s.CreateKey(t.Context(), newTestKey(1), "")
		must(t, err)
		live := beginTurn(t, s, newSession(t, s).ID, "hello")
		empty := disk.fill()
		sessions := growUntilFull(t, s)
		untilPing(t, s, conversation.ErrStoreFull)

		_, sendErr := s.BeginTurn(t.Context(), somebody, newTurn(sessions[0], "no"))
		_, createErr := s.CreateSession(t.Context(), somebody, conversation.NewSession{UserID: "user_0123456789abcdef"})
		_, keyErr := s.CreateKey(t.Context(), newTestKey(2), "")
		for what, err := range map[string]error{"a send": sendErr, "a new session": createErr, "a new key": keyErr} {
			if !errors.Is(err, conversation.ErrStoreFull) {
				t.Errorf("on a full disk, %s returned %v", what, err)
			}
		}
		text := strings.Repeat("x", 256<<10)
		journalText(t, s, live.Key, 0, text)
		if _, err := s.EndTurn(t.Context(), live.Key, completed(text), conversation.Timing{}); err != nil {
			t.Errorf("the end of a live reply: %v", err)
		}
		must(t, s.RevokeKey(t.Context(), key.Owner, key.ID, "test"))

		var deletions sync.WaitGroup // the other program still takes all room on the disk
		for _, id := range sessions {
			deletions.Go(func() {
				if _, err := s.DeleteSession(t.Context(), somebody, id); err != nil {
					t.Errorf("a deletion: %v", err)
				}
			})
		}
		deletions.Wait()
		untilPing(t, s, nil)
		again := growUntilFull(t, s)
		t.Logf("%d sessions before the disk was full, %d after their deletion", len(sessions), len(again))
		if len(again) < len(sessions)/2 {
			t.Errorf("after the deletion of %d sessions there was room for only %d", len(sessions), len(again))
		}
		empty()
		untilPing(t, s, nil)
		newSession(t, s)
		verify(t, s)
	})
}

// On a full disk, a killed server has left a live reply. The next server starts, ends the reply and refuses sends.
func TestDiskFull_Restart_EndsOrphans(t *testing.T) {
	t.Parallel()
	onSmallDisk(t, func(t *testing.T, disk smallDisk) {
		s := openOnDisk(disk)
		session := newSession(t, s)
		live := beginTurn(t, s, session.ID, "hello")
		journalText(t, s, live.Key, 0, "some text")
		disk.fill()
		growUntilFull(t, s)
		closeStore(t, s) // the turn has not ended, as after a kill
		s = openOnDisk(disk)
		untilPing(t, s, conversation.ErrStoreFull)
		_, err := s.EndOrphans(context.Background(), func(text string) int { return len(text) })
		must(t, err)
		m, err := s.Message(t.Context(), somebody, session.ID, live.Reply.ID)
		if m.Content != "some text" || err != nil {
			t.Errorf("the reply is %q, error %v", m.Content, err)
		}
		verify(t, s)
	})
}

func newTestKey(n byte) auth.Key {
	return auth.Key{
		Owner: auth.Owner{Account: "default", Mode: "live"}, ID: fmt.Sprintf("key_%016d", n),
		Secrets: []auth.Secret{{Hash: auth.Hash{n}}}, Scopes: []auth.Scope{auth.Admin},
	}
}
