package window

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Terms are the words of a text for [LexicalScores]. Each word is stored without its ending, as a hash, with its number
// of occurrences. Terms are sorted by hash. Nearly all the cost of a comparison is the computation of the terms, so
// they are stored with the reply. Words can be guessed from their hashes, so terms are as private as the text.
type Terms []Term

// Term is a word of a text.
type Term struct {
	Hash  uint32
	Count uint32
}

// maxTermsText is the number of bytes of a text that TermsOf reads. The text of 4,096 tokens, the largest reply room, has
// about 20 KB. A turn may read the terms of 1,000 exchanges, so a reply of a model that ignores its limit must not have more.
const maxTermsText = 64 << 10

// TermsOf returns the terms of several texts together, for example of a message and its reply. Its time grows as n log
// n with the number of words.
//
// Words are runs of letters, marks and digits. TermsOf ignores case, the accents of Latin letters and the usual endings
// of English words. Many Germanic and Romance languages have similar endings, so TermsOf need not detect the language.
// Without the ending, only the first six letters of a word count. In scripts without spaces between words, and in
// Korean, each pair of adjacent characters is a term. Only the first maxTermsText bytes of each text count.
func TermsOf(texts ...string) Terms {
	var s segmenter
	for _, text := range texts {
		text = text[:min(len(text), maxTermsText)]
		for _, r := range text {
			s.next(r)
		}
		s.end()
	}
	slices.Sort(s.hashes)
	terms := make(Terms, 0, len(s.hashes))
	for _, hash := range s.hashes {
		if n := len(terms); n > 0 && terms[n-1].Hash == hash {
			terms[n-1].Count++
		} else {
			terms = append(terms, Term{hash, 1})
		}
	}
	return slices.Clip(terms)
}

// Merge returns the terms of two texts together, for example of a message and its reply.
func (t Terms) Merge(other Terms) Terms {
	both := make(Terms, 0, len(t)+len(other))
	for len(t) > 0 && len(other) > 0 {
		switch a, b := t[0], other[0]; {
		case a.Hash < b.Hash:
			both, t = append(both, a), t[1:]
		case a.Hash > b.Hash:
			both, other = append(both, b), other[1:]
		default:
			both, t, other = append(both, Term{a.Hash, a.Count + b.Count}), t[1:], other[1:]
		}
	}
	return append(append(both, t...), other...)
}

// AppendBinary appends the encoding of t to b and returns the extended slice. A term takes about five bytes. The error is
// always nil.
func (t Terms) AppendBinary(b []byte) ([]byte, error) {
	before := uint32(0)
	for _, term := range t {
		b = binary.AppendUvarint(b, uint64(term.Hash-before))
		b = binary.AppendUvarint(b, uint64(term.Count))
		before = term.Hash
	}
	return b, nil
}

// UnmarshalBinary decodes the encoding of AppendBinary. It stores the terms behind the elements of t, if t has enough capacity for
// them. For invalid bytes, it returns an error and leaves t unchanged.
func (t *Terms) UnmarshalBinary(b []byte) error {
	terms := slices.Grow((*t)[len(*t):], len(b)/5)
	hash := uint64(0)
	for len(b) > 0 {
		step, n := binary.Uvarint(b)
		count, m := binary.Uvarint(b[max(n, 0):])
		hash += step
		if n <= 0 || m <= 0 || step > math.MaxUint32 || hash > math.MaxUint32 || count-1 >= math.MaxUint32 ||
			step == 0 && len(terms) > 0 {
			return errors.New("not the terms of a text")
		}
		terms = append(terms, Term{uint32(hash), uint32(count)})
		b = b[n+m:]
	}
	*t = terms
	return nil
}

// segmenter splits a text into words.
type segmenter struct {
	word   []rune // the letters of the current word
	before rune   // the previous character if its script is in spaceless, otherwise 0
	hashes []uint32
}

func (s *segmenter) next(r rune) {
	switch {
	case r < 0x80 && ('a' <= r && r <= 'z' || '0' <= r && r <= '9'):
		s.word = append(s.word, r)
	case 'A' <= r && r <= 'Z':
		s.word = append(s.word, r+'a'-'A')
	case r < 0x80:
		s.end()
	case 0x300 <= r && r <= 0x36f: // an accent after its letter
	case unicode.In(r, spaceless...):
		s.pair(r)
	case unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r):
		s.before = 0
		s.word = appendPlain(s.word, unicode.ToLower(r))
	default:
		s.end()
	}
}

// spaceless has the scripts in which each pair of adjacent characters is a term: scripts without spaces, and Korean.
var spaceless = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// pair adds a character of a spaceless script. The character and the previous one make a term; a single character makes
// none.
func (s *segmenter) pair(r rune) {
	before := s.before
	if len(s.word) > 0 {
		s.end()
	}
	if before != 0 {
		s.hashes = append(s.hashes, hash([]rune{before, r}))
	}
	s.before = r
}

// end ends the current word.
func (s *segmenter) end() {
	s.before = 0
	if len(s.word) > 0 {
		s.hashes = append(s.hashes, hash(stem(s.word)))
		s.word = s.word[:0]
	}
}

// accents lists Latin letters, each followed by its accented forms.
const accents = "aàáâãäåāăąǎ cçćĉċč dďđð eèéêëēĕėęě gĝğġģ hĥħ iìíîïĩīĭįǐı jĵ " +
	"kķ lĺļľł nñńņň oòóôõöōŏőơǒø rŕŗř sśŝşšș tţťțŧ uùúûüũūŭůűųưǔ " +
	"wŵ yýÿŷ zźżž"

// plain maps an accented letter to the plain letter.
var plain = func() map[rune]rune {
	plain := make(map[rune]rune)
	for letters := range strings.FieldsSeq(accents) {
		for _, r := range letters {
			plain[r] = rune(letters[0])
		}
	}
	return plain
}()

// ligatures maps a letter to the two letters that replace it.
var ligatures = map[rune]string{'ß': "ss", 'æ': "ae", 'œ': "oe"}

// appendPlain appends a lower-case letter without its accent.
func appendPlain(word []rune, r rune) []rune {
	if letter, ok := plain[r]; ok {
		return append(word, letter)
	}
	if letters, ok := ligatures[r]; ok {
		return append(word, []rune(letters)...)
	}
	return append(word, r)
}

// stemmed is the maximum number of letters of a word that count.
const stemmed = 6

// endings are the endings that stem removes, after it has removed the s of a plural. stem removes only the first ending
// that matches and leaves at least minimum letters.
var endings = []struct {
	ending  []rune
	minimum int
}{
	{[]rune("ing"), 3}, {[]rune("ied"), 2}, {[]rune("ed"), 3}, {[]rune("ly"), 4}, {[]rune("ie"), 2}, {[]rune("en"), 3},
	{[]rune("e"), 3}, {[]rune("y"), 2}, {[]rune("a"), 3}, {[]rune("o"), 3},
}

// stem returns at most the first six letters of a word without its ending.
func stem(word []rune) []rune {
	if n := len(word); n > 3 && word[n-1] == 's' && word[n-2] != 's' {
		word = word[:n-1]
	}
	for _, e := range endings {
		if rest := len(word) - len(e.ending); rest >= e.minimum && slices.Equal(word[rest:], e.ending) {
			word = word[:rest]
			break
		}
	}
	if n := len(word); n > 3 && word[n-1] == word[n-2] {
		word = word[:n-1] // so that "stopped" becomes "stop"
	}
	return word[:min(len(word), stemmed)]
}

// hash returns the FNV-1a hash of a word. The bytes of a character are hashed from low to high, without high zero
// bytes.
func hash(word []rune) uint32 {
	h := uint32(2166136261)
	for _, r := range word {
		for ; r > 0; r >>= 8 {
			h = (h ^ uint32(r&0xff)) * 16777619
		}
	}
	return h
}
