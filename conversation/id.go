package conversation

import (
	"strings"

	"parley/auth/base62"
)

// An id is a prefix and 16 characters of [0-9A-Za-z]. In the id of a session or message, the first 7 characters encode
// the time of creation in milliseconds. So the byte order of ids is the order of creation. The last 9 characters are
// random.
const (
	SessionPrefix = "session_"
	MessagePrefix = "msg_"
	UserPrefix    = "user_"

	suffixLength = 16
	clockLength  = 7
)

// ValidID reports whether id consists of prefix and 16 characters of [0-9A-Za-z].
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

// NewID returns a new id for the time now. The id sorts after last, which is the newest existing id, or "". If now is
// not later than the time in last, the new id encodes the time in last plus 1 ms.
func NewID(prefix string, now Time, last string) string {
	clock := encodeClock(now)
	if floor := clockOf(prefix, last); floor >= clock {
		clock = encodeClock(decodeClock(floor) + 1)
	}
	return prefix + clock + RandomText(suffixLength-clockLength)
}

// OldestSession returns a lower bound for the ids of all sessions that exist at the time now. A session with a smaller id has
// expired, because an id encodes a time that is not earlier than the creation of its session (NewID).
func OldestSession(now Time) string {
	return SessionPrefix + encodeClock(max(0, now.Add(-Lifetime)+1))
}

// RandomText returns n random characters of [0-9A-Za-z].
func RandomText(n int) string { return base62.Random(n) }

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
		out[i] = base62.Alphabet[n%int64(len(base62.Alphabet))]
		n /= int64(len(base62.Alphabet))
	}
	return string(out[:])
}

func decodeClock(clock string) Time {
	var n int64
	for i := range len(clock) {
		n = n*int64(len(base62.Alphabet)) + int64(strings.IndexByte(base62.Alphabet, clock[i]))
	}
	return Time(n)
}
