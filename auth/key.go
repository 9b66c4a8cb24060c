package auth

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// GracePeriod is the time for which the old secret of a key works after a rotation. A day is long enough to change the
// secret in one client after another.
const GracePeriod = 24 * time.Hour

// A key has ended when it was revoked or has expired. A store keeps the record of an ended key for EndedKeyLifetime, so that
// people can find out what happened to the key. It keeps at most MaxEndedKeys such records of an owner, and removes the
// oldest first: otherwise, an account could fill the store with keys that it creates and revokes.
const (
	EndedKeyLifetime = 30 * 24 * time.Hour
	MaxEndedKeys     = 10_000
)

// KeyPrefix is the beginning of the id of a key. 16 random characters of [0-9A-Za-z] follow.
const KeyPrefix = "key_"

// The values of Key.CreatedBy that are not the id of a key.
const (
	CLI      = "cli"      // the operator: with the command parley keys, or with the first start of a server
	Declared = "declared" // the declared admin key
)

// Key is the record of a key. Times are in UTC, truncated to milliseconds; a zero time means that the time is not set. The
// record contains no secret, only hashes.
type Key struct {
	Owner
	ID         string    `json:"keyId"`
	Name       string    `json:"name"` // a label for people
	Scopes     []Scope   `json:"scopes"`
	Prefix     string    `json:"prefix"` // the first characters of the newest secret, so that people recognise the secret
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	CreatedBy  string    `json:"createdBy,omitempty"` // the id of the key that created this key, CLI or Declared; "" if unknown
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"`
	Revoked    bool      `json:"revoked,omitempty"`
	// Secrets contains the newest secret, then the previous secret if the key was rotated. A revoked key has no secrets.
	Secrets []Secret `json:"secrets,omitempty"`
}

// Secret is the record of a secret in the store. It contains the hash of the secret, not the secret.
type Secret struct {
	Hash  Hash      `json:"hash"`
	Since time.Time `json:"since,omitzero"` // the time of creation
	Until time.Time `json:"until,omitzero"` // the end of the grace period; zero for the newest secret of a key
}

// Status is the state of a key.
type Status string

// The states of a key.
const (
	Active  Status = "active"
	Expired Status = "expired"
	Revoked Status = "revoked"
)

// Status returns the state of the key at time now. A revoked key stays revoked, even after its expiry.
func (k *Key) Status(now time.Time) Status {
	switch {
	case k.Revoked:
		return Revoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return Expired
	}
	return Active
}

// SecretExpiry returns the time at which Secrets[i] stops working. That is the end of its grace period or the expiry of the
// key, whichever is earlier. Zero means never.
func (k *Key) SecretExpiry(i int) time.Time {
	until := k.Secrets[i].Until
	if until.IsZero() || !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(until) {
		return k.ExpiresAt
	}
	return until
}

// FindSecret returns the index in Secrets of the secret with this hash. ok is false if the key has no such secret, or if
// the secret no longer works.
func (k *Key) FindSecret(hash Hash, now time.Time) (i int, ok bool) {
	i = slices.IndexFunc(k.Secrets, func(s Secret) bool { return s.Hash == hash })
	if i < 0 || k.Revoked {
		return 0, false
	}
	end := k.SecretExpiry(i)
	return i, end.IsZero() || now.Before(end)
}

// Rotate gives the key a new secret. The previous secret works until the end of [GracePeriod]. A secret before that one
// stops working at once, so a key has at most two secrets.
func (k *Key) Rotate(secret Hash, prefix string, now time.Time) {
	old := k.Secrets[0]
	old.Until = now.Add(GracePeriod)
	k.Secrets = []Secret{{Hash: secret, Since: now}, old}
	k.Prefix = prefix
}

// Revoke revokes the key and removes its secrets.
func (k *Key) Revoke() { k.Revoked, k.Secrets = true, nil }

// timeLayout is the ISO 8601 format in UTC with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Record is the JSON form of a key in the API and on the command line.
type Record struct {
	KeyID                string  `json:"keyId"`
	Name                 string  `json:"name"`
	Mode                 string  `json:"mode"`
	Scopes               []Scope `json:"scopes"`
	Prefix               string  `json:"prefix"`
	CreatedAt            string  `json:"createdAt"`
	CreatedBy            *string `json:"createdBy"` // nil for a key of a version that did not record it
	ExpiresAt            *string `json:"expiresAt"`
	LastUsedAt           *string `json:"lastUsedAt"`
	Status               Status  `json:"status"`
	PreviousKeyExpiresAt *string `json:"previousKeyExpiresAt,omitempty"` // nil unless the previous secret still works
}

// Record returns the JSON form of the key at time now.
func (k *Key) Record(now time.Time) Record {
	r := Record{
		KeyID: k.ID, Name: k.Name, Mode: k.Mode, Scopes: k.Scopes, Prefix: k.Prefix,
		CreatedAt: k.CreatedAt.UTC().Format(timeLayout), ExpiresAt: timeText(k.ExpiresAt), LastUsedAt: timeText(k.LastUsedAt),
		Status: k.Status(now),
	}
	if k.CreatedBy != "" {
		r.CreatedBy = &k.CreatedBy
	}
	if len(k.Secrets) > 1 && now.Before(k.SecretExpiry(1)) {
		r.PreviousKeyExpiresAt = timeText(k.SecretExpiry(1))
	}
	return r
}

func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(timeLayout)
	return &text
}

// The maximum lengths of names, in characters.
const (
	maxName    = 100
	maxAccount = 64
)

// NewKey describes a key that a caller wants to create.
type NewKey struct {
	Name      string
	Scopes    []Scope
	ExpiresAt time.Time // zero means never
}

// CheckName returns an error unless name has 1 to 100 characters and no control characters. The error is the second half of
// a sentence that begins with the name of the field: "must have …". The same is true for the errors of the other checks.
func CheckName(name string) error {
	if n := utf8.RuneCountInString(name); n < 1 || n > maxName {
		return errors.New("must have 1 to 100 characters")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("must not contain control characters")
	}
	return nil
}

// allScopes lists the scopes in the order of the documentation.
var allScopes = []Scope{ReadSessions, WriteSessions, ReadMessages, WriteMessages, ReadAnalytics, Admin}

// ParseScopes returns the scopes with these names. It returns an error if names is empty, or if a name is unknown or occurs
// twice.
func ParseScopes(names []string) ([]Scope, error) {
	if len(names) == 0 {
		return nil, errors.New("must name at least one scope")
	}
	scopes := make([]Scope, 0, len(allScopes))
	for _, name := range names {
		switch {
		case !slices.Contains(allScopes, Scope(name)):
			return nil, errors.New("must each be one of read:sessions, write:sessions, read:messages, write:messages, read:analytics and admin")
		case slices.Contains(scopes, Scope(name)):
			return nil, errors.New("must not name a scope twice")
		}
		scopes = append(scopes, Scope(name))
	}
	return scopes, nil
}

// ParseExpiry parses an ISO 8601 time with a time zone, and truncates the time to milliseconds. It returns an error if the
// time is not later than now, or is later than the year 9999.
func ParseExpiry(text string, now time.Time) (time.Time, error) {
	var at time.Time
	if err := at.UnmarshalText([]byte(text)); err != nil {
		return at, errors.New("must be an ISO 8601 time with a zone, such as 2031-01-01T00:00:00Z")
	}
	at = at.UTC().Truncate(time.Millisecond)
	if !at.After(now) {
		return at, errors.New("must be in the future")
	}
	if at.Year() > 9999 {
		return at, errors.New("must be before the year 10000")
	}
	return at, nil
}

// CheckAccount returns an error unless name has 1 to 64 characters of [0-9A-Za-z._-].
func CheckAccount(name string) error {
	ok := 0 < len(name) && len(name) <= maxAccount
	for _, c := range []byte(name) {
		ok = ok && ('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_' || c == '.')
	}
	if !ok {
		return errors.New("must have 1 to 64 characters of [0-9A-Za-z._-]")
	}
	return nil
}
