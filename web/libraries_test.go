package web

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
)

// library is an entry of static/lib/versions.json: a third-party package. Its files are committed unchanged.
type library struct {
	Package     string            `json:"package"`
	Version     string            `json:"version"`
	License     string            `json:"license"`
	LicenseFile string            `json:"licenseFile"`
	From        string            `json:"from"`
	Integrity   string            `json:"integrity"` // hash of the package's archive in npm's registry
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

func TestLibraries_FilesMatchVersionsJSON(t *testing.T) {
	want := map[string]string{} // file → SHA-256
	for _, l := range libraries(t) {
		if l.Package == "" || l.Version == "" || l.License == "" || l.Integrity == "" ||
			!strings.HasPrefix(l.From, "https://registry.npmjs.org/"+l.Package+"/-/") || !strings.HasSuffix(l.From, "-"+l.Version+".tgz") {
			t.Errorf("%s: versions.json lacks its version, licence, source or integrity: %+v", l.Package, l)
		}
		if l.Files[l.LicenseFile] == "" {
			t.Errorf("%s: versions.json lists no licence file", l.Package)
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
			t.Errorf("%s has the SHA-256 %x, want %q of versions.json", name, got, want[name])
		}
		delete(want, name)
	})
	for name := range want {
		t.Errorf("%s is listed in versions.json, but missing", name)
	}
}
