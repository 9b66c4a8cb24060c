package redis

import (
	"context"
	"encoding/json"

	"parley/auth"
	"parley/auth/limit"
)

var listAuditScript = newScript("list_audit", admits|reads)

// Audit implements auth.Store.
func (s *Store) Audit(ctx context.Context, owner auth.Owner, query auth.AuditQuery) (page auth.AuditPage, err error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, listAuditScript, tag, []string{auditKey(tag)}, millis(query.Before), query.Limit+1)
	if err != nil {
		return page, err
	}
	flat, ok := texts(reply)
	if !ok || len(flat)%2 != 0 {
		return page, listAuditScript.malformed()
	}
	for i := 0; i < len(flat); i += 2 {
		if len(page.Entries) == query.Limit {
			page.Next = page.Entries[query.Limit-1].At
			break
		}
		entry, err := readAudit(flat[i], flat[i+1])
		if err != nil {
			return auth.AuditPage{}, err
		}
		page.Entries = append(page.Entries, entry)
	}
	return page, nil
}

// readAudit reads an audit entry (lua/list_audit.lua lists the members).
func readAudit(record, at string) (auth.AuditEntry, error) {
	var is struct{ ID, Action, Actor, Tier, KeyID, Name, Scopes, Prefix, Expires string }
	if json.Unmarshal([]byte(record), &is) != nil {
		return auth.AuditEntry{}, errRecord
	}
	entry := auth.AuditEntry{
		ID: is.ID, At: instant(at), Action: auth.Action(is.Action), Actor: is.Actor, KeyID: is.KeyID, Name: is.Name, Prefix: is.Prefix,
		ExpiresAt: instant(is.Expires), Tier: limit.Tier(is.Tier),
	}
	if is.Scopes != "" && json.Unmarshal([]byte(is.Scopes), &entry.Scopes) != nil {
		return auth.AuditEntry{}, errRecord
	}
	return entry, nil
}
