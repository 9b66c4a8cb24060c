// Package auth decides who calls and what they may do: accounts with their tiers, API keys with scopes and rotation, and
// tickets, which stand for a key where a browser cannot send a header.
//
// # Owners
//
// A key belongs to an account and a mode, live or test: its [Owner]. Sessions, usage and limits belong to the same pair.
// Every operation of the [Store] but the look-up by hash takes an owner, so that what belongs to another owner cannot even be
// named. To the caller it looks as if it did not exist.
//
// # Secrets
//
// A secret is svc_live_ or svc_test_, 27 random characters of base62 (160 bits) and a checksum of 6. With the checksum a
// mistyped key is refused without a look-up, and scanners for leaked secrets find few false positives. A secret is shown
// once. The store keeps only its SHA-256: a random 160-bit secret cannot be found from the hash, so a slow hash would only
// cost time in every request.
//
// The operator may declare one admin key of the default account by configuration, of 32 characters or more. It needs no
// checksum, is in no list, and can be neither revoked nor rotated through the API. Its hash may be guessable, so it is never
// written anywhere.
//
// # Rotation and revocation
//
// Rotation replaces the secret and keeps the id of the key, so nothing that names the key has to change. The old secret works
// for another 24 hours ([GracePeriod]). Rotating again within that time keeps only the newest two secrets. Revoking a key
// ends both at once; its record stays.
//
// # Verification and admission
//
// [Keys.Verify] finds out who presents a secret. It may answer from a cache that is up to 5 s old, because that alone admits
// nothing: each request also carries an [Admission] in its context, and the first operation of the store admits it in its own
// transaction. There the key is checked again and the request counted. So admission costs no round trip of its own, and a
// revoked key is refused on the next request, on every node.
//
// # Tickets
//
// A ticket is sealed (AES-GCM) with a key that all nodes share through the store. It names the principal, and optionally the
// only session that it may be used for. It works once and for 30 s: time enough for a page to open its socket, and too short
// to be worth stealing from a log, which is where a query parameter may end up.
//
// # What is written, and when
//
// Keys and the day's count of test keys are durable when an operation returns. When a key was last used is collected and
// written once a second ([Keys.Close] writes the rest), so that no request waits for it.
//
// Start reading in key.go (what a key is), then keys.go (what can be done with it).
package auth
