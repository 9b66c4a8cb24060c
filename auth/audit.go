package auth

import (
	"time"

	"parley/auth/base62"
	"parley/auth/limit"
)

// A store keeps an audit entry for AuditLifetime: a quarter of a year, which is the usual interval of audits. It keeps at most
// MaxAuditEntries entries of an owner, about 3 MB, and removes the oldest first: otherwise, an account could fill the store with
// keys that it creates and revokes. To keep entries for longer, collect the log of the server.
const (
	AuditLifetime   = 90 * 24 * time.Hour
	MaxAuditEntries = 10_000
)

// AuditPrefix is the beginning of the id of an audit entry. 16 random characters of [0-9A-Za-z] follow.
const AuditPrefix = "audit_"

// NewAuditID returns a random id for an audit entry.
func NewAuditID() string { return AuditPrefix + base62.Random(16) }

// Action is an operation on keys or on an account.
type Action string

// The actions in the audit log.
const (
	KeyCreated  Action = "key.created"
	KeyRotated  Action = "key.rotated"
	KeyRevoked  Action = "key.revoked"
	TierChanged Action = "tier.changed" // of an existing account; the entry belongs to the account in live mode
)

// AuditEntry records one successful operation. The store writes the entry in the operation's transaction. Name, Scopes,
// Prefix and ExpiresAt describe the key after the operation.
type AuditEntry struct {
	ID        string     `json:"id"`
	At        time.Time  `json:"at,omitzero"` // the time of the operation; later than that of all earlier entries of the owner
	Action    Action     `json:"action"`
	Actor     string     `json:"actor"`           // the id of the key that made the request, CLI or Declared
	KeyID     string     `json:"keyId,omitempty"` // "" for TierChanged
	Name      string     `json:"name,omitempty"`
	Scopes    []Scope    `json:"scopes,omitempty"`
	Prefix    string     `json:"prefix,omitempty"`
	ExpiresAt time.Time  `json:"expiresAt,omitzero"`
	Tier      limit.Tier `json:"tier,omitempty"` // the new tier of the account, if the operation named one
}

// AuditOf returns an entry for an action on a key, with a new id. The caller sets At.
func AuditOf(action Action, actor string, key *Key) AuditEntry {
	return AuditEntry{
		ID: NewAuditID(), Action: action, Actor: actor, KeyID: key.ID, Name: key.Name, Scopes: key.Scopes, Prefix: key.Prefix,
		ExpiresAt: key.ExpiresAt,
	}
}

// AuditQuery selects a page of audit entries.
type AuditQuery struct {
	Before time.Time // only entries with an earlier At; zero means all entries
	Limit  int       // maximum number of entries on the page, at least 1
}

// AuditPage is a page of audit entries, newest first.
type AuditPage struct {
	Entries []AuditEntry
	Next    time.Time // AuditQuery.Before of the next page; zero on the last page
}

// AuditRecord is the JSON form of an audit entry in the API.
type AuditRecord struct {
	ID        string      `json:"id"`
	At        string      `json:"at"`
	Action    Action      `json:"action"`
	Actor     string      `json:"actor"`
	KeyID     *string     `json:"keyId"`
	Name      *string     `json:"name"`
	Scopes    []Scope     `json:"scopes"`
	Prefix    *string     `json:"prefix"`
	ExpiresAt *string     `json:"expiresAt"`
	Tier      *limit.Tier `json:"tier"`
}

// Record returns the JSON form of the entry. Members without a value are nil.
func (e *AuditEntry) Record() AuditRecord {
	r := AuditRecord{
		ID: e.ID, At: e.At.UTC().Format(timeLayout), Action: e.Action, Actor: e.Actor, Scopes: e.Scopes, ExpiresAt: timeText(e.ExpiresAt),
	}
	if e.KeyID != "" {
		r.KeyID, r.Name, r.Prefix = &e.KeyID, &e.Name, &e.Prefix
	}
	if e.Tier != "" {
		r.Tier = &e.Tier
	}
	return r
}
