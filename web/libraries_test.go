package web

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
)

// library is a package of other people that is committed as it was published: an entry of static/lib/versions.json.
type library struct {
	Package     string            `json:"package"`
	Version     string            `json:"version"`
	License     string            `json:"license"`
	LicenseFile string            `json:"licenseFile"`
	From        string            `json:"from"`
	Integrity   string            `json:"integrity"` // of the archive, as npm has it
	Files       map[string]string `json:"files"`     // path in the package → SHA-256
}

const (
	libraryFolder = "lib/"
	libraryTable  = "lib/versions.json"
)

func libraries(t *testing.T) []library {
	t.Helper()
	content, err := fs.ReadFile(Files(), libraryTable)
	if err != nil {
		t.Fatal(err)
	}
	var known []library
	if err := json.Unmarshal(content, &known); err != nil {
		t.Fatal(err)
	}
	return known
}

func TestLibrariesAreAsTheyWerePublished(t *testing.T) {
	want := map[string]string{} // file → SHA-256
	for _, l := range libraries(t) {
		if l.Package == "" || l.Version == "" || l.License == "" || l.Integrity == "" ||
			!strings.HasPrefix(l.From, "https://registry.npmjs.org/"+l.Package+"/-/") || !strings.HasSuffix(l.From, "-"+l.Version+".tgz") {
			t.Errorf("%s: the table does not say what it is, under which licence, and where from: %+v", l.Package, l)
		}
		if l.Files[l.LicenseFile] == "" {
			t.Errorf("%s: its licence is missing", l.Package)
		}
		for name, sum := range l.Files {
			want[libraryFolder+l.Package+"/"+name] = sum
		}
	}
	forEachFile(t, func(name, content string) {
		if !strings.HasPrefix(name, libraryFolder) || name == libraryTable {
			return
		}
		if got := sha256.Sum256([]byte(content)); want[name] != hex.EncodeToString(got[:]) {
			t.Errorf("%s has the SHA-256 %x, the table says %q", name, got, want[name])
		}
		delete(want, name)
	})
	for name := range want {
		t.Errorf("%s is in the table, and is missing", name)
	}
}
