package base62

import "testing"

func TestRandom_CharactersEquallyLikely(t *testing.T) {
	seen := map[rune]int{}
	for _, c := range Random(62_000) {
		seen[c]++
	}
	for _, c := range Alphabet {
		if n := seen[c]; n < 800 || n > 1200 { // the expected number is 1,000, and 200 is six standard deviations
			t.Errorf("%q occurs %d times in 62,000 characters, want about 1,000", c, n)
		}
	}
	if len(seen) != len(Alphabet) {
		t.Errorf("Random uses %d different characters, want %d", len(seen), len(Alphabet))
	}
}

func TestRandom_EachText_HasLengthNAndDiffers(t *testing.T) {
	seen := map[string]bool{}
	for n := range 100 {
		text := Random(n)
		if len(text) != n {
			t.Errorf("Random(%d) returned %d characters", n, len(text))
		}
		if n >= 16 && seen[text] {
			t.Errorf("Random returned %q twice", text)
		}
		seen[text] = true
	}
}
