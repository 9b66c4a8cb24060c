package guide

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWriteTable_Twice_OnlyTableReplaced(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "guide.md")
	if err := os.WriteFile(file, []byte("before\n<!-- faults -->\nold\n<!-- /faults -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := WriteTable(file, "faults", "new\n"); err != nil {
			t.Fatal(err)
		}
	}
	if text, _ := os.ReadFile(file); string(text) != "before\n<!-- faults -->\n\nnew\n\n<!-- /faults -->\nafter\n" {
		t.Errorf("the file is %q", text)
	}
}

func TestWriteTable_NoMarkers_ErrorAndFileUnchanged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "guide.md")
	if err := os.WriteFile(file, []byte("<!-- faults -->\nno end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(file, "faults", "new\n"); err == nil || !strings.Contains(err.Error(), "<!-- /faults -->") {
		t.Errorf("the error is %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "<!-- faults -->\nno end\n" {
		t.Errorf("the file is %q", text)
	}
}

func TestAbout_Checkout_DateAndCommit(t *testing.T) {
	t.Parallel()
	if Commit() == "unknown" {
		t.Skip("no checkout")
	}
	about := About(time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC), "3 rounds")
	if !strings.HasPrefix(about, "2026-11-22, 3 rounds, commit `") {
		t.Errorf("the sentence is %q", about)
	}
}
