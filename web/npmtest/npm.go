// Package npmtest installs npm packages for tests, outside the repository. Only tests import it.
package npmtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Install returns the folder whose node_modules has what package-lock.json in a folder of test data names, each package checked
// against the hash there. It is installed once, beside Go's own caches; no script of a package runs. Node and npm are no
// requirement of Parley, nor is the network, so a machine without them leaves the test out and says so, but CI must not. It may be
// called by several tests and processes at once.
func Install(t testing.TB, testdata string) string {
	t.Helper()
	missing := func(what string, err error) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s: %v", what, err)
		}
		t.Skipf("LEFT OUT: %s: %v", what, err)
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			missing("no "+name+" on this machine (apt-get install nodejs npm)", err)
		}
	}
	lock, err := os.ReadFile(filepath.Join(testdata, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		caches = os.TempDir()
	}
	folder := filepath.Join(caches, "parley-tests", fmt.Sprintf("%s-%.8x", filepath.Base(testdata), sha256.Sum256(lock)))
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(folder), "installing-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	copyFiles(t, testdata, fresh, "package.json", "package-lock.json")
	command := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	command.Dir = fresh
	if output, err := command.CombinedOutput(); err != nil {
		missing("npm cannot install what "+testdata+" names", fmt.Errorf("%w\n%s", err, output))
	}
	if err := os.Rename(fresh, folder); err != nil { // another test may have been first
		if _, there := os.Stat(folder); there != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func copyFiles(t testing.TB, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
