package tokens

import (
	"container/heap"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

// vocabulary is the library's codec, and a workaround for a fault in it.
//
// The vocabularies first split a text into pieces by a regular expression. One of its branches is \s*[\r\n]+: blank
// lines, with the whitespace on them, are one piece up to the last newline. The library (v0.10.0) compiles it so that
// the piece ends at the first newline. It therefore counts "\n \n" as two tokens, where tiktoken has one, and takes
// quadratic time: 95 ms for 10,000 characters. So pieces with whitespace between newlines ([oddBlank]) are cut out
// and merged here, and the library counts the text between them. They are all whitespace, so only the few hundred
// tokens of whitespace are needed.
type vocabulary struct {
	codec  tokenizer.Codec
	marks  bool              // words of the vocabulary contain combining marks
	blanks map[string]uint32 // the rank of each token that can be part of whitespace
}

// newVocabulary builds a vocabulary; the package comment says what that costs.
func newVocabulary(encoding tokenizer.Encoding) *vocabulary {
	codec, err := tokenizer.Get(encoding)
	if err != nil {
		panic("tokens: " + err.Error()) // encodingOf returns only encodings that exist
	}
	list, _ := tokenizer.Get(encoding) // a second one, since decoding makes it keep a table that Count does not need
	v := &vocabulary{codec: codec, marks: encoding == tokenizer.O200kBase, blanks: make(map[string]uint32)}
	for id := range uint(200_000) { // more than either has
		token, err := list.Decode([]uint{id})
		if err == nil && onlyBlankBytes(token) {
			v.blanks[strings.Clone(token)] = uint32(id)
		}
	}
	return v
}

// onlyBlankBytes reports whether token can be part of whitespace: each of its bytes occurs in some whitespace
// character. A token may be a part of a character, so its characters cannot be checked.
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

// plain counts a text without odd blanks.
func (v *vocabulary) plain(text string) int {
	if text == "" {
		return 0
	}
	n, err := v.codec.Count(text)
	if err != nil { // only with a time limit or a strict mode, and we set neither
		return len(text) // an upper bound: a token has at least one byte
	}
	return n
}

// oddBlank finds the first piece of whitespace, text[start:end], that has other whitespace between two newlines. If
// there is none, both are len(text). A piece ends with the last newline of its run of whitespace. Newlines right
// after punctuation belong to the punctuation.
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

// isOdd reports whether a piece of whitespace that ends with a newline has other whitespace between newlines.
func isOdd(piece string) bool {
	first := strings.IndexAny(piece, newlines)
	return first >= 0 && strings.TrimLeft(piece[first:], newlines) != ""
}

// takesNewlines reports whether the last piece of text, which is followed by a newline, includes that newline. A
// piece of punctuation does. In vocabularies with combining marks in words (say, the variation selector of an emoji),
// a mark makes a word of the one character before it, so that pieces must be found from the left.
func (v *vocabulary) takesNewlines(text string) bool {
	from := len(text) // the start of the characters that are not whitespace, letters or numbers
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

// merge counts the tokens of a piece by byte-pair encoding: it joins the neighbours that make the token of the lowest
// rank, the leftmost if there are several, until none make a token. O(n log n).
func (v *vocabulary) merge(piece string) int {
	if _, ok := v.blanks[piece]; ok {
		return 1
	}
	n := len(piece)
	next, prev := make([]int, n+1), make([]int, n+1) // of the part that starts at this byte; next is -1 if none does
	for i := range next {
		next[i], prev[i] = i+1, i-1
	}
	var pairs pairHeap
	offer := func(at int) {
		if at < 0 || next[at] >= n {
			return
		}
		end := next[next[at]]
		if rank, ok := v.blanks[piece[at:end]]; ok {
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
			continue // one of the two has been joined with another part
		}
		next[p.at], prev[p.end], next[middle] = p.end, p.at, -1
		parts--
		offer(p.at)
		offer(prev[p.at])
	}
	return parts
}

// pair is two neighbouring parts that make the token piece[at:end].
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
