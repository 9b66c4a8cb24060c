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

// Install installs the packages that package-lock.json in the folder testdata lists. It returns the folder that contains
// node_modules. npm checks the packages against the hashes in package-lock.json and runs no script of a package. The packages
// stay in os.UserCacheDir, so Install needs npm only once for each content of package-lock.json. With -short, Install skips the
// test. Without node, npm or the network it also skips the test, or fails it if CI=true. Several tests and processes may call
// Install at the same time.
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
		t.Skipf("%s: %v", what, err)
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
	if err := os.Rename(fresh, folder); err != nil { // another test may have installed the packages meanwhile
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
