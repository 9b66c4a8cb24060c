package server_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"parley/auth"
)

// auditRecord is an audit entry in a response.
type auditRecord struct {
	ID, Action, Actor              string
	At                             time.Time
	KeyID, Name, Prefix, ExpiresAt *string
	Scopes                         []string
	Tier                           *string
}

// audit returns the audit entries of a key's owner, newest first. It reads pages of the given size.
func (p *parley) audit(t *testing.T, key, limit string) (all []auditRecord) {
	t.Helper()
	for cursor := ""; ; {
		got := p.status(t, "list", key, "GET", "/v1/audit?limit="+limit+cursor, nil, 200, "")
		page := decodeInto[struct {
			Data       []auditRecord
			Pagination struct {
				HasMore    bool
				NextCursor string
			}
		}](t, got)
		all = append(all, page.Data...)
		if !page.Pagination.HasMore {
			return all
		}
		cursor = "&cursor=" + page.Pagination.NextCursor
	}
}

func TestAudit_KeyOperations_Listed(t *testing.T) {
	p := start(t, echo)
	first, admin := p.newKey("acme", auth.Live, auth.NewKey{Name: "first", Scopes: []auth.Scope{auth.Admin}})
	made := p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"second","scopes":["read:sessions"],"expiresAt":"2101-01-01T00:00:00Z"}`, 200, "").body
	id := made["keyId"].(string)
	rotated := p.status(t, "rotate", admin, "POST", "/v1/keys/"+id+"/rotate", nil, 200, "").body
	p.status(t, "create without the scope", made["key"].(string), "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 403, "insufficient_scope")
	p.status(t, "revoke", admin, "DELETE", "/v1/keys/"+id, nil, 200, "")
	p.status(t, "revoke again", admin, "DELETE", "/v1/keys/"+id, nil, 404, "key_not_found")
	if err := p.keys.RevokeFor(t.Context(), first.Owner, p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"third","scopes":["admin"]}`, 200, "").body["keyId"].(string)); err != nil {
		t.Fatal(err)
	}
	var got []string
	all := p.audit(t, admin, "100")
	for _, e := range slices.Backward(all) {
		got = append(got, strings.Join([]string{e.Action, e.Actor, *e.Name, strings.Join(e.Scopes, ",")}, " "))
	}
	want := []string{
		"key.created cli first admin", "key.created " + first.ID + " second read:sessions", "key.rotated " + first.ID + " second read:sessions",
		"key.revoked " + first.ID + " second read:sessions", "key.created " + first.ID + " third admin", "key.revoked cli third admin",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log is %q, want %q", got, want)
	}
	if e := all[3]; *e.KeyID != id || *e.Prefix != rotated["prefix"] || *e.ExpiresAt != "2101-01-01T00:00:00.000Z" || e.Tier != nil {
		t.Errorf("the rotation has the entry %+v", e)
	}
	if e := all[5]; *e.Tier != "pro" || e.ExpiresAt != nil || time.Since(e.At).Abs() > time.Hour {
		t.Errorf("the creation of the account has the entry %+v", e)
	}
	inPages := p.audit(t, admin, "2")
	for i := range inPages {
		if len(inPages) != len(all) || inPages[i].ID != all[i].ID {
			t.Fatalf("in pages, the audit log is %+v", inPages)
		}
	}
}

func TestAudit_OtherAccountOrScope_NotListed(t *testing.T) {
	p := start(t, echo)
	p.key("acme", auth.Admin)
	other := p.key("bravo", auth.Admin)
	if entries := p.audit(t, other, "100"); len(entries) != 1 {
		t.Errorf("the other account lists %+v, want only its own key", entries)
	}
	p.status(t, "all scopes but admin", p.key("acme", auth.ReadSessions, auth.WriteSessions, auth.ReadMessages, auth.WriteMessages, auth.ReadAnalytics),
		"GET", "/v1/audit", nil, 403, "insufficient_scope")
	p.status(t, "declared key", adminKey, "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 200, "")
	if entries := p.audit(t, adminKey, "1"); len(entries) != 1 || entries[0].Actor != auth.Declared {
		t.Errorf("the account of the declared key lists %+v", entries)
	}
	p.status(t, "wrong cursor", other, "GET", "/v1/audit?cursor=x", nil, 400, "validation_error")
}
