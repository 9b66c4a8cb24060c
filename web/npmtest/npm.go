// Package npmtest installs npm packages for tests in the user's cache folder. Only tests import it.
package npmtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Install installs the packages of testdata/package-lock.json, checked against its hashes, and returns the folder that contains
// node_modules. It installs them once per lock file, into os.UserCacheDir, and runs no package scripts. Without node, npm or the
// network it skips the test, but fails it where CI=true. It skips the test under -short. It is safe for concurrent use, also by several processes.
func Install(t testing.TB, testdata string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: node is not started")
	}
	missing := func(what string, err error) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s: %v", what, err)
		}
		t.Skipf("LEFT OUT: %s: %v", what, err)
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			missing(name+" is not installed (apt-get install nodejs npm)", err)
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
		missing("npm cannot install the packages of "+testdata, fmt.Errorf("%w\n%s", err, output))
	}
	if err := os.Rename(fresh, folder); err != nil { // another test may have installed them meanwhile
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
