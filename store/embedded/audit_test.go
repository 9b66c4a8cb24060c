package embedded

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
)

func auditEntries(t *testing.T, s *Store, owner auth.Owner) []auth.AuditEntry {
	t.Helper()
	page, err := s.Audit(t.Context(), owner, auth.AuditQuery{Limit: 20_000})
	must(t, err)
	return page.Entries
}

// storedAudit returns the number of entries in the file.
func storedAudit(t *testing.T, s *Store) (n int) {
	t.Helper()
	must(t, s.view(t.Context(), func(r *reading) error {
		n = r.bucket(auditBucket).Stats().KeyN
		return nil
	}))
	return n
}

func TestAudit_EntriesOver90DaysOld_HiddenThenRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		key := aKey(auth.Hash{1})
		for i := range 25 {
			_, err := s.CreateKey(t.Context(), aKey(auth.HashOf(strconv.Itoa(i))), "")
			must(t, err)
		}
		time.Sleep(auth.AuditLifetime - time.Second)
		if n := len(auditEntries(t, s, key.Owner)); n != 25 {
			t.Errorf("a second before 90 days have passed, %d entries are listed, want 25", n)
		}
		time.Sleep(2 * time.Second)
		if n := len(auditEntries(t, s, key.Owner)); n != 0 {
			t.Errorf("after 90 days, %d entries are listed, want none", n)
		}
		for i, want := range []int{16, 7, 3, 4} { // each operation adds one entry, and removes up to ten
			_, err := s.CreateKey(t.Context(), aKey(auth.Hash{byte(i + 1)}), "")
			must(t, err)
			if n := storedAudit(t, s); n != want {
				t.Errorf("%d entries are stored, want %d", n, want)
			}
		}
		must(t, s.Close())
	})
}

func TestAudit_MoreThanMaxEntries_OldestRemoved(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	key := aKey(auth.Hash{1})
	must(t, s.submit(t.Context(), func(w *writing) error {
		for i := range auth.MaxAuditEntries + 5 {
			entry := auth.AuditOf(auth.KeyCreated, auth.CLI, &key)
			entry.Name = strconv.Itoa(i)
			if err := w.audit(key.Owner, entry); err != nil {
				return err
			}
		}
		return nil
	}))
	entries := auditEntries(t, s, key.Owner)
	if oldest := entries[len(entries)-1].Name; len(entries) != auth.MaxAuditEntries || oldest != "5" {
		t.Errorf("%d entries are left, the oldest is number %s; want %d and 5", len(entries), oldest, auth.MaxAuditEntries)
	}
}
