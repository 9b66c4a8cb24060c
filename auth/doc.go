// Package auth authenticates and authorises callers. It defines accounts with tiers, API keys with scopes and rotation,
// and tickets. A browser uses a ticket where it cannot send a header with a key.
//
// # Owners
//
// A key belongs to an [Owner], which is an account in a mode (live or test). Sessions, usage and limits also belong to an
// owner. Every operation of the [Store], except the look-up by hash, works only on the keys of one owner. So a caller
// cannot reach the keys of another owner, and gets the same response as for keys that do not exist.
//
// # Secrets
//
// A secret has a prefix (svc_live_ or svc_test_), 27 random base62 characters (160 bits), and a checksum of 6 characters.
// The checksum has two uses: [Keys.Verify] refuses a mistyped key without a look-up, and scanners for leaked secrets find
// few false positives. Only the response that creates a secret contains it. The store keeps only the SHA-256 of a secret.
// Nobody can try all values of 160 random bits, so a slower hash would only make each request slower.
//
// In the configuration, the operator may declare one admin key of the default account. The declared key has at least 32
// characters, with at least 8 different ones after the prefix. It needs no checksum, appears in no list, and cannot be revoked
// or rotated through the API. The operator may have chosen a weak secret, which somebody could guess with the help of its
// hash. So the hash is never written anywhere.
//
// # Rotation and revocation
//
// Rotation replaces the secret of a key. The id of the key stays, so callers that store the id need no change. The old
// secret works for another 24 hours ([GracePeriod]). A second rotation within that time ends the oldest secret, so a key
// has at most two secrets. Revocation ends both secrets at once. The record of the key stays for 30 days (see
// [EndedKeyLifetime]).
//
// # Verification and admission
//
// [Keys.Verify] returns the principal of a secret. It may use a cached look-up that is up to 5 s old, because a verified
// request is not yet admitted. The context of each request contains an [Admission]. The first store operation of a request
// checks the key again and counts the request. So admission needs no extra round trip to the store, and every node refuses
// the next request with a revoked key.
//
// A request may also count for one user of the account: see Admission.Subject. The store finds the user of a session in the same
// round trip.
//
// Frames on WebSockets count for their key ([Frames]). A node leases a number of frames from the store, and counts each frame
// in its own memory.
//
// # Tickets
//
// A ticket is a random text (160 bits). The store has its SHA-256 and, beside it, the hash of the secret that created the
// ticket, and perhaps the only session that the ticket opens. So a copy of the store is not enough to open a socket. Tickets
// are not signed, so there is no signing key to protect. [Keys.RedeemTicket] removes the ticket from the store and looks up
// the secret that created it. So account, mode, scopes, tier and expiry come from the record of the key, and a ticket never
// works longer than that secret.
//
// A ticket works once, within 30 s: long enough for a page to open its socket. A page may send the ticket as a query
// parameter, which may appear in a log. Usually, the ticket is useless before somebody reads the log.
//
// # Audit
//
// Each operation on a key leaves an [AuditEntry], which the store writes in the transaction of the operation. So nobody can
// change a key without a trace. The actor of an entry is the key that made the request, the operator, or the declared key.
//
// # Durability
//
// When an operation returns, its changes of keys and of the daily count of test keys are durable. [Keys] collects the
// times of last use and writes them once a second, so that no request waits for this write. [Keys.Close] writes the rest.
//
// Start reading in key.go (the record of a key), then keys.go (the operations on keys).
package auth
