package conversation

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNewID_ClockStandsOrGoesBack_SortsAfterLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := ""
		at := Time(1_700_000_000_000)
		for range 50 {
			at += Time(rapid.Int64Range(-5, 5).Draw(t, "step"))
			id := NewID(MessagePrefix, at, last)
			if !ValidID(MessagePrefix, id) || id <= last {
				t.Fatalf("after %s came %s, want a valid id that sorts after it", last, id)
			}
			last = id
		}
	})
}

func TestOldestSession_RandomTimes_BeforeEverySessionThatExists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		created := Time(rapid.Int64Range(0, 1<<41).Draw(t, "created"))
		id := NewID(SessionPrefix, created, "")
		expires := created.Add(Lifetime)
		if oldest := OldestSession(expires - 1); oldest > id {
			t.Errorf("1 ms before the expiry, the oldest session is %s, want one before %s", oldest, id)
		}
		if oldest := OldestSession(expires); oldest <= id {
			t.Errorf("at the expiry, the oldest session is %s, want one after %s", oldest, id)
		}
	})
}

func TestValidID_WrongPrefixLengthOrCharacter_False(t *testing.T) {
	for _, test := range []struct {
		id   string
		want bool
	}{
		{"user_0123456789abcdef", true}, {"user_ABCXYZabcxyz0189", true},
		{"", false}, {"user_", false}, {"user_0123456789abcde", false}, {"user_0123456789abcdefg", false},
		{"User_0123456789abcdef", false}, {"msg_0123456789abcdef", false}, {"user_0123456789abcde_", false},
		{"user_0123456789abcd\u00e9", false}, {"user_0123456789abcde\n", false},
	} {
		if got := ValidID(UserPrefix, test.id); got != test.want {
			t.Errorf("ValidID(%q) is %v, want %v", test.id, got, test.want)
		}
	}
}
