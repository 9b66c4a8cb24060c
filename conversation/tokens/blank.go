package tokens

import (
	"container/heap"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

// vocabulary counts with the codec of the library, and works around a fault in the library.
//
// A regular expression first splits a text into pieces. One branch of the expression is \s*[\r\n]+: a run of blank
// lines is one piece, up to the last newline. The library (v0.10.0) compiles this branch so that the piece ends at the
// first newline. So the library counts "\n \n" as two tokens instead of one, and takes quadratic time: 95 ms for 10,000
// characters. Therefore this package finds the pieces that have whitespace between newlines (oddBlank) and counts these
// pieces itself (merge). The library counts the text between these pieces. The pieces are all whitespace, so merge
// needs only the few hundred tokens of whitespace.
type vocabulary struct {
	codec  tokenizer.Codec
	marks  bool                     // whether words may contain combining marks
	blanks func() map[string]uint32 // the ranks of the tokens that can be part of whitespace; listed by the first call
}

// newVocabulary builds a vocabulary. The package comment gives the time and the memory.
func newVocabulary(encoding tokenizer.Encoding) *vocabulary {
	codec, err := tokenizer.Get(encoding)
	if err != nil {
		panic("tokens: " + err.Error()) // encodingOf returns only encodings that exist
	}
	return &vocabulary{
		codec: codec, marks: encoding == tokenizer.O200kBase,
		blanks: sync.OnceValue(func() map[string]uint32 { return listBlanks(encoding) }),
	}
}

// listBlanks returns the ranks of the tokens that can be part of whitespace. It takes as much time as the rest of a
// vocabulary, and only texts with blank lines need it.
func listBlanks(encoding tokenizer.Encoding) map[string]uint32 {
	// list is a second codec, freed after this function: Decode builds a table that Count does not need.
	list, _ := tokenizer.Get(encoding)
	blanks := make(map[string]uint32)
	for id := range uint(200_000) { // the ids of all tokens of both encodings, except special tokens
		token, err := list.Decode([]uint{id})
		if err == nil && onlyBlankBytes(token) {
			blanks[strings.Clone(token)] = uint32(id)
		}
	}
	return blanks
}

// onlyBlankBytes reports whether token can be part of whitespace: each byte of token occurs in some whitespace
// character. It checks bytes, not characters, because a token may be only a part of a character.
func onlyBlankBytes(token string) bool {
	const bytes = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" +
		"\u2028\u2029\u202f\u205f\u3000"
	for i := range len(token) {
		if strings.IndexByte(bytes, token[i]) < 0 {
			return false
		}
	}
	return true
}

func (v *vocabulary) count(text string) int {
	n := 0
	for {
		start, end := v.oddBlank(text)
		n += v.plain(text[:start])
		if end == start {
			return n
		}
		n += v.merge(text[start:end])
		text = text[end:]
	}
}

// plain counts the tokens of a text in which oddBlank finds no piece.
func (v *vocabulary) plain(text string) int {
	if text == "" {
		return 0
	}
	n, err := v.codec.Count(text)
	if err != nil { // the library fails only with a time limit or in strict mode, and this package sets neither
		return len(text) // an upper bound: a token has at least one byte
	}
	return n
}

// oddBlank returns the bounds of the first piece of whitespace in text that has other whitespace between two newlines.
// If text has no such piece, start and end are len(text). A piece ends with the last newline of its run of whitespace.
// Newlines directly after punctuation belong to the piece of the punctuation.
func (v *vocabulary) oddBlank(text string) (start, end int) {
	for from := 0; ; {
		newline := strings.IndexAny(text[from:], newlines)
		if newline < 0 {
			return len(text), len(text)
		}
		start = len(strings.TrimRightFunc(text[:from+newline], unicode.IsSpace))
		from = len(text) - len(strings.TrimLeftFunc(text[start:], unicode.IsSpace)) // the end of the run
		end = start + strings.LastIndexAny(text[start:from], newlines) + 1
		if !isOdd(text[start:end]) {
			continue
		}
		if v.takesNewlines(text[:start]) {
			start = end - len(strings.TrimLeft(text[start:end], newlines))
		}
		if isOdd(text[start:end]) {
			return start, end
		}
	}
}

const newlines = "\r\n"

// isOdd reports whether a piece has other whitespace between two newlines. The piece must be whitespace and end with a
// newline.
func isOdd(piece string) bool {
	first := strings.IndexAny(piece, newlines)
	return first >= 0 && strings.TrimLeft(piece[first:], newlines) != ""
}

// takesNewlines reports whether the last piece of text would include a newline that follows. A piece of punctuation
// would, a word would not. In o200k_base, words may contain combining marks, for example the variation selector of an
// emoji. There, a mark and the character before it make a word. So takesNewlines must find the pieces from left to
// right.
func (v *vocabulary) takesNewlines(text string) bool {
	from := len(text) // the start of the last run of characters that are not whitespace, letters or numbers
	before := rune(-1)
	for from > 0 {
		r, size := utf8.DecodeLastRuneInString(text[:from])
		if before = r; unicode.IsSpace(r) || unicode.IsLetter(r) || unicode.IsNumber(r) {
			break
		}
		from -= size
		before = -1
	}
	rest := []rune(text[from:])
	mark := func(i int) bool { return v.marks && i < len(rest) && unicode.IsMark(rest[i]) }
	if len(rest) > 0 && before == ' ' && !mark(0) {
		return true // a space and the punctuation after it are one piece
	}
	for i := 0; i < len(rest); i++ {
		if !mark(i) && !mark(i+1) {
			return true
		}
	}
	return false
}

// merge counts the tokens of a piece by byte-pair encoding, in O(n log n). In each step, it joins the two neighbouring
// parts that make the token of the lowest rank. If several pairs make this token, it joins the leftmost pair. It stops
// when no two neighbours make a token.
func (v *vocabulary) merge(piece string) int {
	if _, ok := v.blanks()[piece]; ok {
		return 1
	}
	n := len(piece)
	// For a part that starts at byte i, next[i] and prev[i] are the starts of the next and the previous part. If no part
	// starts at byte i, next[i] is -1.
	next, prev := make([]int, n+1), make([]int, n+1)
	for i := range next {
		next[i], prev[i] = i+1, i-1
	}
	var pairs pairHeap
	offer := func(at int) {
		if at < 0 || next[at] >= n {
			return
		}
		end := next[next[at]]
		if rank, ok := v.blanks()[piece[at:end]]; ok {
			heap.Push(&pairs, pair{rank, at, end})
		}
	}
	for i := range n {
		offer(i)
	}
	parts := n
	for len(pairs) > 0 {
		p := heap.Pop(&pairs).(pair)
		middle := next[p.at]
		if middle < 0 || middle >= n || next[middle] != p.end {
			continue // one of the two parts has been joined with another part
		}
		next[p.at], prev[p.end], next[middle] = p.end, p.at, -1
		parts--
		offer(p.at)
		offer(prev[p.at])
	}
	return parts
}

// pair describes two neighbouring parts that make the token piece[at:end].
type pair struct {
	rank    uint32
	at, end int
}

type pairHeap []pair

func (h pairHeap) Len() int { return len(h) }
func (h pairHeap) Less(i, j int) bool {
	return h[i].rank < h[j].rank || h[i].rank == h[j].rank && h[i].at < h[j].at
}
func (h pairHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *pairHeap) Push(x any)   { *h = append(*h, x.(pair)) }
func (h *pairHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
