package storetest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
)

func auditTests() []test {
	return []test{
		{"each key operation has an entry", auditOfKeys},
		{"change of tier has an entry in live mode", auditOfTier},
		{"refused operation has no entry", auditOfRefusals},
		{"pages of entries have no gaps and no repeats", auditInPages},
		{"another owner's entries are not found", auditOfOwner},
		{"concurrent operations have an entry each", racingAudit},
	}
}

// auditPages reads all audit entries of an owner, and returns them in pages. limit is the AuditQuery.Limit of each page.
func (s *subject) auditPages(t *testing.T, owner auth.Owner, limit int) (pages [][]auth.AuditEntry) {
	t.Helper()
	query := auth.AuditQuery{Limit: limit}
	for {
		page, err := s.keys.Audit(s.ctx, owner, query)
		must(t, err, "Audit")
		pages = append(pages, page.Entries)
		if page.Next.IsZero() {
			return pages
		}
		query.Before = page.Next
	}
}

// wantAudit checks the audit entries of an owner, oldest first. It checks ID and At of each entry; in want, these fields are
// unset.
func (s *subject) wantAudit(t *testing.T, owner auth.Owner, want ...auth.AuditEntry) {
	t.Helper()
	entries := slices.Concat(s.auditPages(t, owner, 100)...)
	slices.Reverse(entries)
	last, seen := time.Time{}, map[string]bool{}
	for i := range entries {
		e := &entries[i]
		if !e.At.After(last) || time.Since(e.At).Abs() > time.Hour || e.At.Location() != time.UTC || seen[e.ID] ||
			!strings.HasPrefix(e.ID, auth.AuditPrefix) || len(e.ID) != len(auth.AuditPrefix)+16 {
			t.Errorf("entry %d after one at %v: %+v", i, last, e)
		}
		last, seen[e.ID] = e.At, true
		e.ID, e.At = "", time.Time{}
	}
	same(t, "the audit entries", entries, want)
}

// audited returns the entry of an action on a key, without ID and At.
func audited(action auth.Action, actor string, key auth.Key) auth.AuditEntry {
	e := auth.AuditOf(action, actor, &key)
	e.ID = ""
	return e
}

func auditOfKeys(t *testing.T, s *subject) {
	first := s.newKey()
	s.createFirst(t, first, true)
	key := s.newKey()
	key.CreatedBy, key.ExpiresAt = first.ID, time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	created, err := s.keys.CreateKey(s.ctx, key, limit.Pro)
	must(t, err, "CreateKey")
	rotated, err := s.keys.RotateKey(s.ctx, s.keyOwner(), key.ID, newHash(), "svc_live_cd", auth.Declared)
	must(t, err, "RotateKey")
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), key.ID, key.ID), "RevokeKey")
	creation := audited(auth.KeyCreated, first.ID, created)
	creation.Tier = limit.Pro
	changed := auth.AuditEntry{Action: auth.TierChanged, Actor: first.ID, Tier: limit.Pro}
	entries := []auth.AuditEntry{
		audited(auth.KeyCreated, auth.CLI, first), creation, changed,
		audited(auth.KeyRotated, auth.Declared, rotated), audited(auth.KeyRevoked, key.ID, rotated),
	}
	s.wantAudit(t, s.keyOwner(), entries...)
}

func auditOfTier(t *testing.T, s *subject) {
	test, live := s.newKey(), s.keyOwner()
	test.Mode = auth.Test
	var creations []auth.AuditEntry
	for _, tier := range []limit.Tier{limit.Free, "", limit.Pro, limit.Pro} { // the first key creates the account
		key := s.newKey()
		key.Mode = auth.Test
		created, err := s.keys.CreateKey(s.ctx, key, tier)
		must(t, err, "CreateKey")
		creation := audited(auth.KeyCreated, auth.CLI, created)
		creation.Tier = tier
		creations = append(creations, creation)
	}
	s.wantAudit(t, test.Owner, creations...)
	s.wantAudit(t, live, auth.AuditEntry{Action: auth.TierChanged, Actor: auth.CLI, Tier: limit.Pro})
}

func auditOfRefusals(t *testing.T, s *subject) {
	key := s.newKey()
	key, err := s.keys.CreateKey(s.ctx, key, "")
	must(t, err, "CreateKey")
	created := audited(auth.KeyCreated, auth.CLI, key)
	_, err = s.createWithin(1, s.newKey())
	wantQuotaError(t, err, auth.QuotaError{Quota: limit.QuotaKeys, Used: 1, Limit: 1})
	if _, err := s.keys.CreateKey(s.ctx, key, ""); err == nil {
		t.Error("CreateKey with an id in use: no error")
	}
	wantError(t, "RevokeKey", s.keys.RevokeKey(s.ctx, s.keyOwner(), s.newKey().ID, auth.CLI), auth.ErrKeyNotFound)
	_, err = s.keys.RotateKey(s.ctx, s.keyOwner(), s.newKey().ID, newHash(), "svc_live_cd", auth.CLI)
	wantError(t, "RotateKey", err, auth.ErrKeyNotFound)
	s.createFirst(t, s.newKey(), false)
	s.wantAudit(t, s.keyOwner(), created)
}

func auditInPages(t *testing.T, s *subject) {
	same(t, "the pages of an owner without entries", s.auditPages(t, s.keyOwner(), 3), [][]auth.AuditEntry{nil})
	for range 7 {
		_, err := s.keys.CreateKey(s.ctx, s.newKey(), "")
		must(t, err, "CreateKey")
	}
	all := slices.Concat(s.auditPages(t, s.keyOwner(), 100)...)
	for limit, want := range map[int][][]auth.AuditEntry{
		3: {all[:3], all[3:6], all[6:]}, 6: {all[:6], all[6:]}, 7: {all}, 8: {all},
	} {
		same(t, "the pages", s.auditPages(t, s.keyOwner(), limit), want)
	}
}

func auditOfOwner(t *testing.T, s *subject) {
	_, err := s.keys.CreateKey(s.ctx, s.newKey(), "")
	must(t, err, "CreateKey")
	for _, other := range []auth.Owner{
		{Account: s.owner.Account, Mode: auth.Test}, {Account: s.owner.Account + "2", Mode: auth.Live},
		{Account: s.owner.Account[:len(s.owner.Account)-1], Mode: auth.Live},
	} {
		s.wantAudit(t, other)
	}
}

func racingAudit(t *testing.T, s *subject) {
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if _, err := s.keys.CreateKey(s.ctx, s.newKey(), ""); err != nil {
				t.Errorf("CreateKey: %v", err)
			}
		})
	}
	callers.Wait()
	same(t, "the number of entries", len(slices.Concat(s.auditPages(t, s.keyOwner(), 3)...)), 20)
}
