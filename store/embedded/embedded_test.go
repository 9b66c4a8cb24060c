package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"parley/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		os.Exit(crashChild(path))
	}
	goleak.VerifyTestMain(m)
}

// open opens a store in a new directory, or an existing one's file again, until the end of the test.
func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, Options{noSync: true, scrubInterval: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "parley.db") }

func TestTheStoreConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		s := open(t, newPath(t))
		return storetest.Backend{Conversation: s, Keys: s}
	})
}
