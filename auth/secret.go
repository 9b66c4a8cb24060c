package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"strings"

	"parley/auth/base62"
)

// A secret consists of the prefix of its mode, 27 random base62 characters (160 bits), and a checksum of 6 characters.
const (
	livePrefix     = "svc_live_"
	testPrefix     = "svc_test_"
	bodyLength     = 27
	checksumLength = 6
	// shownLength is the number of characters of a secret that the record of its key shows: the prefix and 4 of 27 random
	// characters (24 of 160 bits).
	shownLength = len(livePrefix) + 4
	// minDeclared is the minimum length of a declared secret, including the prefix.
	minDeclared = 32
	// minDifferent is the minimum number of different characters in a declared secret after the prefix. A random secret has
	// far more. The check finds placeholders such as svc_live_xxxx… and repeated words.
	minDifferent = 8
)

// NewSecret returns a new random secret. mode is Live or Test.
func NewSecret(mode string) string {
	body := "svc_" + mode + "_" + base62.Random(bodyLength)
	return body + checksum(body)
}

// wellFormed reports whether secret has the form and the checksum of a secret from NewSecret.
func wellFormed(secret string) bool {
	if len(secret) != len(livePrefix)+bodyLength+checksumLength || modeOf(secret) == "" {
		return false
	}
	body := secret[:len(secret)-checksumLength]
	return checksum(body) == secret[len(body):]
}

// modeOf returns the mode that the prefix of a secret contains, or "" if the prefix is unknown.
func modeOf(secret string) string {
	switch {
	case strings.HasPrefix(secret, livePrefix):
		return "live"
	case strings.HasPrefix(secret, testPrefix):
		return "test"
	}
	return ""
}

// ShownPrefix returns the part of a generated secret that the record of its key shows, Key.Prefix. It returns "" for any other
// text, because the beginning of a declared secret may make the rest easy to guess.
func ShownPrefix(secret string) string {
	if !wellFormed(secret) {
		return ""
	}
	return secret[:shownLength]
}

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	var out [checksumLength]byte
	for i := checksumLength - 1; i >= 0; i-- {
		out[i] = base62.Alphabet[sum%uint32(len(base62.Alphabet))]
		sum /= uint32(len(base62.Alphabet))
	}
	return string(out[:])
}

// Hash is the SHA-256 of a secret. Stores keep the hash, never the secret. The fmt package prints "(hash)" instead of the
// bytes.
type Hash [sha256.Size]byte

// HashOf returns the hash of a secret.
func HashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// MarshalText implements encoding.TextMarshaler, for the records of stores.
func (h Hash) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, h[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	decoded, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(decoded) != len(h) {
		return errors.New("not the hash of a secret")
	}
	copy(h[:], decoded)
	return nil
}

// String returns "(hash)", so that logs do not contain hashes. With the hash of a weak declared key, somebody could check
// guesses of its secret.
func (h Hash) String() string { return "(hash)" }

// GoString returns the same as String.
func (h Hash) GoString() string { return h.String() }

// CheckDeclared returns an error unless secret may be the secret of the declared admin key. The secret must begin with
// svc_live_ and have at least 32 characters, all of them visible ASCII. After the prefix, it must have at least 8 different
// characters. A secret that passes may still be easy to guess.
func CheckDeclared(secret string) error {
	if !strings.HasPrefix(secret, livePrefix) || len(secret) < minDeclared {
		return errors.New("the admin key must begin with svc_live_ and have at least 32 characters")
	}
	for _, c := range []byte(secret) {
		if c <= ' ' || c >= 0x7f {
			return errors.New("the admin key must contain only visible ASCII characters")
		}
	}
	different := make(map[rune]bool)
	for _, c := range secret[len(livePrefix):] {
		different[c] = true
	}
	if len(different) < minDifferent {
		return errors.New("the admin key must have at least 8 different characters after svc_live_: use random characters, for example of openssl rand -hex 20")
	}
	return nil
}
