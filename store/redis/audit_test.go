package redis

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/store/redis/redistest"
)

// fillAudit stores n audit entries of a new owner. Their times are 1 ms apart, and the last time is newest.
func fillAudit(t *testing.T, s *Store, n int, newest time.Time) auth.Owner {
	t.Helper()
	owner := auth.Owner{Account: newAccount(), Mode: auth.Live}
	for i := 0; i < n; i += 1000 {
		var entries []redis.Z
		for j := i; j < min(n, i+1000); j++ {
			at := newest.Add(time.Duration(j+1-n) * time.Millisecond).UnixMilli()
			entries = append(entries, redis.Z{Score: float64(at), Member: fmt.Sprintf(`{"id":"audit_%016d","action":"key.created"}`, j)})
		}
		must(t, s.db.ZAdd(t.Context(), auditKey(ownerTag(owner)), entries...).Err())
	}
	return owner
}

func auditEntries(t *testing.T, s *Store, owner auth.Owner) []auth.AuditEntry {
	t.Helper()
	page, err := s.Audit(t.Context(), owner, auth.AuditQuery{Limit: 20_000})
	must(t, err)
	return page.Entries
}

func TestAudit_EntriesOver90DaysOld_HiddenThenRemoved(t *testing.T) {
	s := newStore(t)
	owner := fillAudit(t, s, 25, time.Now().Add(-auth.AuditLifetime))
	if left := auditEntries(t, s, owner); len(left) > 0 {
		t.Errorf("%d entries are listed, want none", len(left))
	}
	for _, want := range []int64{16, 7, 3, 4} { // each operation adds one entry, and removes up to ten
		_, err := s.CreateKey(t.Context(), aKey(owner), "")
		must(t, err)
		if n := s.db.ZCard(t.Context(), auditKey(ownerTag(owner))).Val(); n != want {
			t.Errorf("%d entries are stored, want %d", n, want)
		}
	}
	ttl := s.db.PTTL(t.Context(), auditKey(ownerTag(owner))).Val()
	if ttl > auth.AuditLifetime+time.Second || ttl < auth.AuditLifetime-time.Minute {
		t.Errorf("the audit log expires in %v, want %v", ttl, auth.AuditLifetime)
	}
}

func TestAudit_MoreThanMaxEntries_OldestRemoved(t *testing.T) {
	s := newStore(t)
	owner := fillAudit(t, s, auth.MaxAuditEntries+5, time.Now().Add(-time.Hour))
	_, err := s.CreateKey(t.Context(), aKey(owner), "")
	must(t, err)
	entries := auditEntries(t, s, owner)
	if oldest := entries[len(entries)-1].ID; len(entries) != auth.MaxAuditEntries || oldest != fmt.Sprintf("audit_%016d", 6) {
		t.Errorf("%d entries are left, the oldest is %s; want %d and the seventh", len(entries), oldest, auth.MaxAuditEntries)
	}
}

// TestAudit_ClockSetBack_TimesRise begins with an entry whose time is ahead of the clock of Redis, as if the clock had been set
// back.
func TestAudit_ClockSetBack_TimesRise(t *testing.T) {
	s := newStore(t)
	ahead := time.Now().Add(time.Hour)
	owner := fillAudit(t, s, 1, ahead)
	_, err := s.CreateKey(t.Context(), aKey(owner), "")
	must(t, err)
	if entries := auditEntries(t, s, owner); len(entries) != 2 || entries[0].At.Sub(ahead.Truncate(time.Millisecond)) != time.Millisecond {
		t.Errorf("the entries are %+v, want the newest 1 ms after %v", entries, ahead)
	}
}

// TestAuditScripts_FewAndManyEntries_SameCommands reads a page, and writes an entry, for accounts with few and many entries.
// Redis must execute the same commands.
func TestAuditScripts_FewAndManyEntries_SameCommands(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	count := func(n int) (all []map[string]int) {
		owner := fillAudit(t, s, n, time.Now().Add(-time.Minute))
		for _, op := range []func() error{
			func() error { _, err := s.CreateKey(t.Context(), aKey(owner), ""); return err },
			func() error { _, err := s.Audit(t.Context(), owner, auth.AuditQuery{Limit: 5}); return err },
		} {
			calls, _ := commands(t, server, func() { must(t, op()) })
			all = append(all, calls)
		}
		return all
	}
	count(1) // loads the scripts
	if few, many := count(10), count(9_000); !slices.EqualFunc(few, many, maps.Equal) {
		t.Errorf("the commands for 10 entries are %v; for 9,000 entries, they are %v", few, many)
	}
}
