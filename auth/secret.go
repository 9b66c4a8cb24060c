package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"strings"
)

// A secret is a prefix that tells its mode, 27 random characters of base62 (160 bits), and 6 characters of checksum,
// so that a mistyped key is recognised without a look-up (design section 2, key secret).
const (
	livePrefix     = "svc_live_"
	testPrefix     = "svc_test_"
	bodyLength     = 27
	checksumLength = 6
	// shownLength is how much of a secret its record shows.
	shownLength = len(livePrefix) + 4
	// minDeclared is the least length of a declared secret, prefix included.
	minDeclared = 32

	alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewSecret returns a new secret of that mode, "live" or "test".
func NewSecret(mode string) string {
	body := "svc_" + mode + "_" + randomText(bodyLength)
	return body + checksum(body)
}

// wellFormed reports whether secret could have come from NewSecret.
func wellFormed(secret string) bool {
	if len(secret) != len(livePrefix)+bodyLength+checksumLength || modeOf(secret) == "" {
		return false
	}
	body := secret[:len(secret)-checksumLength]
	return checksum(body) == secret[len(body):]
}

// modeOf returns the mode that a secret's prefix names, or "".
func modeOf(secret string) string {
	switch {
	case strings.HasPrefix(secret, livePrefix):
		return "live"
	case strings.HasPrefix(secret, testPrefix):
		return "test"
	}
	return ""
}

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	var out [checksumLength]byte
	for i := checksumLength - 1; i >= 0; i-- {
		out[i] = alphabet[sum%uint32(len(alphabet))]
		sum /= uint32(len(alphabet))
	}
	return string(out[:])
}

// randomText returns n random characters of base62.
func randomText(n int) string {
	const fair = 256 - 256%len(alphabet)
	out := make([]byte, 0, n)
	var random [64]byte
	for len(out) < n {
		rand.Read(random[:]) // never fails
		for _, b := range random {
			if int(b) < fair && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out)
}

// Hash is the SHA-256 of a secret: all that is kept of it. 160 random bits cannot be found from it. It is not printed.
type Hash [sha256.Size]byte

// HashOf returns the hash of a secret.
func HashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// MarshalText implements encoding.TextMarshaler, for the records of stores.
func (h Hash) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, h[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	decoded, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(decoded) != len(h) {
		return errors.New("not the hash of a secret")
	}
	copy(h[:], decoded)
	return nil
}

// String hides the hash from logs: that of a declared key could be guessed at.
func (h Hash) String() string { return "(hash)" }

// GoString is String.
func (h Hash) GoString() string { return h.String() }

// CheckDeclared reports what is wrong with a secret that an operator wants to declare, nil if nothing is.
func CheckDeclared(secret string) error {
	if !strings.HasPrefix(secret, livePrefix) || len(secret) < minDeclared {
		return errors.New("a declared admin key begins with svc_live_ and has at least 32 characters")
	}
	for _, c := range []byte(secret) {
		if c <= ' ' || c >= 0x7f {
			return errors.New("a declared admin key has visible ASCII characters only")
		}
	}
	return nil
}
