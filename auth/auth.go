package auth

import (
	"context"
	"errors"
	"slices"
	"time"

	"parley/auth/limit"
)

var (
	// ErrInvalidToken means that a key or ticket is missing, malformed, unknown, expired or revoked. The error does not
	// name the reason, because the reason would help to guess keys.
	ErrInvalidToken = errors.New("the API key is missing, invalid or expired")
	// ErrKeyNotFound means that the owner has no key with that id, or that the key is already revoked. A rotation also
	// returns this error for an expired key.
	ErrKeyNotFound = errors.New("no such API key")
	// ErrScopeNotHeld means that a principal tried to create a key with a scope that the principal does not have.
	ErrScopeNotHeld = errors.New("a key can only grant scopes that it has itself")
)

// Scope is a permission of a key.
type Scope string

// The scopes. Admin includes all other scopes.
const (
	ReadSessions  Scope = "read:sessions"
	WriteSessions Scope = "write:sessions"
	ReadMessages  Scope = "read:messages"
	WriteMessages Scope = "write:messages"
	ReadAnalytics Scope = "read:analytics"
	Admin         Scope = "admin"
)

// The modes: live for production, test for development. The two modes of an account share no sessions, keys or usage. The
// prefix of a secret contains the mode.
const (
	Live = "live"
	Test = "test"
)

// Owner is an account in a mode. A key belongs to one owner. Everything that a caller creates with the key belongs to the
// same owner.
type Owner struct {
	Account string `json:"account"`
	Mode    string `json:"mode"` // Live or Test
}

// SocketLease is the longest time for which the sockets of a dead node still count towards the quota of their owner. A node
// renews its leases every [SocketRenewal]. A lease survives two failed renewals, for example during a failover of the store.
// The lease is short, because after a crash the clients of the dead node connect to other nodes.
const (
	SocketLease   = 30 * time.Second
	SocketRenewal = 10 * time.Second
)

// Store keeps accounts, keys and tickets. Its methods are atomic, and may be called from any goroutine. When a method returns,
// its changes are durable, except those of TouchKeys and PutTicket. All times are from the store's clock. Besides the errors
// named here, each method may return an error of the store, for example when the store is unreachable.
type Store interface {
	// KeyByHash finds the key that has a secret with this hash, and the tier of its account. It returns ErrInvalidToken if
	// the secret is unknown or no longer works.
	KeyByHash(ctx context.Context, hash Hash) (KeyMatch, error)

	// CreateKey stores a new key with one secret, and returns the key with CreatedAt. The CreatedAt of each key is later
	// than that of all earlier keys of the owner. The first key of an account creates the account. tier becomes the tier of
	// the account. If tier is "", an existing account keeps its tier, and a new account gets limit.Free. CreateKey returns
	// an error if a key with the same id or the same secret exists. It returns a *[QuotaError] if the owner already has as
	// many active keys as LimitsOf(ctx).Keys. CreateKey, RevokeKey and RotateKey write an [AuditEntry]. The actor of a
	// creation is key.CreatedBy.
	CreateKey(ctx context.Context, key Key, tier limit.Tier) (Key, error)
	// CreateFirstKey works like CreateKey with tier "" if the account never had a key. Otherwise it has no effect, and
	// created is false.
	CreateFirstKey(ctx context.Context, key Key) (created bool, err error)
	// Keys returns a page of the keys of an owner, newest first, including expired and revoked keys. The cost of a page does
	// not depend on the number of keys. CreateKey and Keys also remove a few records of ended keys: see [EndedKeyLifetime].
	Keys(ctx context.Context, owner Owner, query KeyQuery) (KeyPage, error)
	// RevokeKey marks a key as revoked and removes its secrets. The record of the key stays for EndedKeyLifetime. RevokeKey
	// returns ErrKeyNotFound if the owner has no such key, or if the key is already revoked. actor is AuditEntry.Actor.
	RevokeKey(ctx context.Context, owner Owner, keyID, actor string) error
	// RotateKey gives a key a new secret, as [Key.Rotate] does, and returns the key. It returns ErrKeyNotFound if the owner
	// has no such key. It also returns ErrKeyNotFound for a revoked or expired key, because the new secret would not work.
	// actor is AuditEntry.Actor.
	RotateKey(ctx context.Context, owner Owner, keyID string, secret Hash, prefix, actor string) (Key, error)
	// Audit returns a page of the audit entries of an owner, newest first, without entries older than AuditLifetime. The
	// cost of a page does not depend on the number of entries.
	Audit(ctx context.Context, owner Owner, query AuditQuery) (AuditPage, error)
	// KeyAlive returns nil if the secret with the hash p.Secret belongs to the key of p and still works, else
	// ErrInvalidToken. The store does not know the declared key.
	KeyAlive(ctx context.Context, p Principal) error
	// Admit decides the [Admission] in ctx, if it is pending. First, Admit checks that the key still works; the declared
	// key always works. Then Admit counts the request in the minute of its owner and in the usage of the hour
	// (conversation.Store.Usage). It also counts a request with a test key in the day of the account; this count is
	// durable. If the tier limits users to less than the account, it also counts the request in the minute of its user (see
	// [Admission]). It does not count a refused request.
	Admit(ctx context.Context) error
	// UserUse returns the numbers of requests and tokens that count for a user in the last minute. Both are 0 if the tier does
	// not limit users to less than the account.
	UserUse(ctx context.Context, owner Owner, userID string) (limit.UserUse, error)
	// TakeFrames takes a lease of frames that clients send on WebSockets with the key keyID: see limit.FrameMeter. It does not
	// check whether the key exists. A restart of an embedded store resets the counts.
	TakeFrames(ctx context.Context, owner Owner, keyID string, take limit.FrameTake) (limit.FrameLease, error)
	// OpenSocket admits the request in ctx like Admit, and counts an open socket of the owner. close takes the socket out of
	// the count; the caller must call it once. OpenSocket returns a *[QuotaError] if the owner already has as many open
	// sockets on all nodes as LimitsOf(ctx).Sockets. After an error, close is nil, and nothing is counted. If a node dies,
	// its sockets stop counting after at most [SocketLease].
	OpenSocket(ctx context.Context, owner Owner) (close func(), err error)
	// TouchKeys sets the times of last use. It does not replace a later time, and skips unknown keys.
	TouchKeys(ctx context.Context, uses []KeyUse) error

	// PutTicket stores a ticket under the hash of its text, and returns the time at which the ticket expires: after
	// TicketLifetime. Before that, PutTicket decides the [Admission] in ctx, if it is pending. A restart or a failover may
	// lose the ticket.
	PutTicket(ctx context.Context, hash Hash, ticket Ticket) (expires time.Time, err error)
	// TakeTicket removes the ticket with this hash and returns it. So only one caller on any node gets the ticket. TakeTicket
	// returns ErrInvalidToken if there is no such ticket, or if it has expired. After any other error, the ticket may be gone.
	TakeTicket(ctx context.Context, hash Hash) (Ticket, error)
}

// KeyMatch is the result of [Store.KeyByHash].
type KeyMatch struct {
	Key  Key        // without LastUsedAt in some stores, because verification does not need this time
	Tier limit.Tier // the tier of the account
	// Secret is the index in Key.Secrets of the secret that has the hash.
	Secret int
}

// KeyQuery selects a page of keys.
type KeyQuery struct {
	Before time.Time // only keys with an earlier CreatedAt; zero means all keys
	Limit  int       // maximum number of keys on the page, at least 1
}

// KeyPage is a page of keys, newest first.
type KeyPage struct {
	Keys []Key
	// Next is KeyQuery.Before of the next page; zero on the last page. A page before the last page may have fewer keys than
	// KeyQuery.Limit, even none.
	Next time.Time
}

// KeyUse is one use of a key.
type KeyUse struct {
	Owner Owner
	KeyID string
	At    time.Time
}

// Principal is an authenticated caller. Its fields come from the record of the caller's key. SessionID comes from the ticket.
type Principal struct {
	Account string
	Mode    string
	Tier    limit.Tier
	KeyID   string
	Scopes  []Scope
	// Secret is the hash of the caller's secret, for [Keys.Revalidate]. A caller with a ticket has the hash of the secret that
	// created the ticket. It is zero for the declared admin key, because the hash of a weak secret helps to guess the secret.
	Secret Hash
	// Until is the time at which the secret stops working; zero means never. A later rotation does not change Until.
	Until time.Time
	// DeprecatedSince is the time at which a rotation replaced the secret; zero if the secret is the newest of its key. The
	// secret works for at most [GracePeriod] after that time.
	DeprecatedSince time.Time
	// SessionID is the id of the only session that the principal may access; "" means any session. Only a ticket can limit
	// the principal to one session.
	SessionID string
}

// Owner returns the owner of the data that the principal may access.
func (p Principal) Owner() Owner { return Owner{p.Account, p.Mode} }

// Has reports whether the principal has the scope.
func (p Principal) Has(scope Scope) bool {
	return slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, Admin)
}

// MayAccess reports whether SessionID allows access to the session. It does not check the owner.
func (p Principal) MayAccess(sessionID string) bool {
	return p.SessionID == "" || p.SessionID == sessionID
}
