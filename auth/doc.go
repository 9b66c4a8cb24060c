// Package auth authenticates and authorises callers. It has accounts with tiers, API keys with scopes and rotation, and
// tickets. A ticket replaces a key where a browser cannot send a header.
//
// # Owners
//
// A key belongs to an account and a mode, live or test: its [Owner]. Sessions, usage and limits belong to the same pair.
// Every operation of the [Store] except the look-up by hash is limited to an owner, so no caller can reach another
// owner's keys. They look as if they did not exist.
//
// # Secrets
//
// A secret has a prefix (svc_live_ or svc_test_), 27 random base62 characters (160 bits), and a checksum of 6 characters.
// The checksum has two uses: a mistyped key is refused without a look-up, and scanners for leaked secrets find few false
// positives. A secret is shown once. The store keeps only its SHA-256. Nobody can search 160 random bits, so a slow hash
// would only cost time in every request.
//
// By configuration, the operator may declare one admin key of the default account, with at least 32 characters. That key
// needs no checksum, appears in no list, and cannot be revoked or rotated through the API. Its secret may be weak enough
// to be guessed from its hash, so that hash is never written anywhere.
//
// # Rotation and revocation
//
// Rotation replaces the secret and keeps the id of the key, so nothing that names the key has to change. The old secret works
// for another 24 hours ([GracePeriod]). Rotating again within that time keeps only the newest two secrets. Revoking a key
// ends both at once. The record of the key stays.
//
// # Verification and admission
//
// [Keys.Verify] returns the principal of a secret. It may use a cached look-up that is up to 5 s old, because
// verification alone admits nothing. Each request also carries an [Admission] in its context. The first store operation
// of a request checks the key again and counts the request, in its own transaction. So admission needs no extra round
// trip, and a revoked key is refused on the next request, on every node.
//
// # Tickets
//
// A ticket is sealed (AES-GCM) with a key that all nodes share through the store. It names the principal, and optionally the
// only session that it may be used for. It works once, within 30 s: long enough for a page to open its socket. Query
// parameters may end up in a log, but a ticket in a log has usually been used or has expired.
//
// # What is written, and when
//
// Keys and the day's count of test keys are durable when an operation returns. Times of last use are collected and
// written once a second, so no request waits for that write. [Keys.Close] writes the rest.
//
// Start reading in key.go (what a key is), then keys.go (what can be done with it).
package auth
