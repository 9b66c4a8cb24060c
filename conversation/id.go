package conversation

import (
	"crypto/rand"
	"strings"
)

// Ids are a prefix and 16 characters of [0-9A-Za-z] (design section 2): in sessions' and messages' the first 7 count
// milliseconds, so that ids sort by creation as bytes, and 9 are random.
const (
	SessionPrefix = "session_"
	MessagePrefix = "msg_"
	UserPrefix    = "user_"

	alphabet     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	suffixLength = 16
	clockLength  = 7
)

// ValidID reports whether id is prefix and 16 characters of [0-9A-Za-z].
func ValidID(prefix, id string) bool {
	suffix, ok := strings.CutPrefix(id, prefix)
	if !ok || len(suffix) != suffixLength {
		return false
	}
	for i := range len(suffix) {
		c := suffix[i]
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') {
			return false
		}
	}
	return true
}

// NewID returns an id of the moment at that sorts after last; last may be "". Where the clock has not moved on since
// last, the id's clock does.
func NewID(prefix string, at Time, last string) string {
	clock := encodeClock(at)
	if floor := clockOf(prefix, last); floor >= clock {
		clock = encodeClock(decodeClock(floor) + 1)
	}
	return prefix + clock + RandomText(suffixLength-clockLength)
}

// RandomText returns n random characters of [0-9A-Za-z].
func RandomText(n int) string {
	const fair = 256 - 256%len(alphabet) // bytes from here on would favour the first characters
	out := make([]byte, 0, n)
	var random [32]byte
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

func clockOf(prefix, id string) string {
	if !ValidID(prefix, id) {
		return ""
	}
	return id[len(prefix) : len(prefix)+clockLength]
}

func encodeClock(at Time) string {
	var out [clockLength]byte
	n := int64(at)
	for i := clockLength - 1; i >= 0; i-- {
		out[i] = alphabet[n%int64(len(alphabet))]
		n /= int64(len(alphabet))
	}
	return string(out[:])
}

func decodeClock(clock string) Time {
	var n int64
	for i := range len(clock) {
		n = n*int64(len(alphabet)) + int64(strings.IndexByte(alphabet, clock[i]))
	}
	return Time(n)
}
