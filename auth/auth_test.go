package auth

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWellFormed_OneWrongCharacter_ReturnsFalse(t *testing.T) {
	seen := map[string]bool{}
	for _, mode := range []string{"live", "test"} {
		for range 100 {
			secret := NewSecret(mode)
			if !wellFormed(secret) || modeOf(secret) != mode || seen[secret] {
				t.Fatalf("%s is not a new, well-formed %s secret", secret, mode)
			}
			seen[secret] = true
			for i := range secret {
				if wrong := secret[:i] + string(otherCharacter(secret[i])) + secret[i+1:]; wellFormed(wrong) {
					t.Fatalf("%s is well formed, although character %d is wrong", wrong, i)
				}
			}
		}
	}
}

// otherCharacter returns a character that is not c.
func otherCharacter(c byte) byte {
	if c == 'x' {
		return 'y'
	}
	return 'x'
}
