package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// scene is the testing.TB of one try, for package redistest. A try runs outside of a test, so scene has its own clean-up and its
// own failures. It implements only the methods that redistest calls; another method panics.
type scene struct {
	testing.TB // nil: an implementation must embed this interface, because it has an unexported method

	mu       sync.Mutex
	cleanups []func() // guarded by mu
	failures []string // guarded by mu
	skipped  string   // guarded by mu; why the try could not run here; "" if it ran
}

// play runs body, and then the clean-ups in reverse order. It returns after all clean-ups, even if body ends early with
// Fatal.
func (s *scene) play(body func()) {
	finish := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if r := recover(); r != nil {
					trace := make([]byte, 4<<10)
					s.Errorf("panic: %v\n%s", r, trace[:runtime.Stack(trace, false)])
				}
			}()
			f()
		}()
		<-done
	}
	finish(body)
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		last := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		finish(last)
	}
}

// result returns the failures, and the reason why the try was skipped.
func (s *scene) result() (failures []string, skipped string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures), s.skipped
}

func (s *scene) Helper() {}

func (s *scene) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *scene) Errorf(format string, about ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, about...))
}

func (s *scene) Fatalf(format string, about ...any) {
	s.Errorf(format, about...)
	runtime.Goexit()
}

func (s *scene) Fatal(about ...any) { s.Fatalf("%s", strings.TrimSpace(fmt.Sprintln(about...))) }

// Skipf ends the try: it cannot run on this machine.
func (s *scene) Skipf(format string, about ...any) {
	s.mu.Lock()
	s.skipped = fmt.Sprintf(format, about...)
	s.mu.Unlock()
	runtime.Goexit()
}

func (s *scene) TempDir() string {
	dir, err := os.MkdirTemp("", "parley-chaos-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
