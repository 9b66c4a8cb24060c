package tokens

import (
	_ "embed" // for the vocabularies
	"hash/maphash"
	"unicode/utf8"
)

// o200k and cl100k hold the tokens of OpenAI's vocabularies in the order of their ranks. One byte before each token is
// the token's length. The tests compare them with the SHA-256 of the files that OpenAI publishes.
var (
	//go:embed o200k_base.tokens
	o200k string
	//go:embed cl100k_base.tokens
	cl100k string
)

// A position of a token is the index of its first byte in o200k or cl100k. Positions have the order of ranks, so this
// package uses them in place of ranks. 0 is the position of no token, because a length precedes the first token.
const none = 0

// vocabulary finds tokens by their text, in a hash table with open addressing. It is immutable.
type vocabulary struct {
	tokens string
	seed   maphash.Seed
	slots  []uint32 // positions of tokens, or none; the length is a power of two
}

// newVocabulary builds the table. At most half of its slots are used, so that a search seldom needs a second slot.
func newVocabulary(tokens string) *vocabulary {
	count := 0
	for at := 0; at < len(tokens); at += 1 + int(tokens[at]) {
		count++
	}
	size := 1
	for size < 2*count {
		size *= 2
	}
	v := &vocabulary{tokens: tokens, seed: maphash.MakeSeed(), slots: make([]uint32, size)}
	for at := 1; at < len(tokens); {
		end := at + int(tokens[at-1])
		v.slots[v.slot(tokens[at:end])] = uint32(at)
		at = end + 1
	}
	return v
}

// slot returns the index of the slot of a token. If the vocabulary lacks the token, that slot holds none.
func (v *vocabulary) slot(token string) int {
	mask := len(v.slots) - 1
	i := int(maphash.String(v.seed, token)) & mask
	for {
		at := int(v.slots[i])
		if at == none || int(v.tokens[at-1]) == len(token) && v.tokens[at:at+len(token)] == token {
			return i
		}
		i = (i + 1) & mask
	}
}

// find returns the position of a token.
func (v *vocabulary) find(token string) uint32 { return v.slots[v.slot(token)] }

// partSize is the maximum number of bytes of a piece that merge gets at once, because merge takes up to 28 bytes of
// memory for each byte. A piece of a client's message is never larger: a message has at most 10,000 characters of 4
// bytes.
const partSize = 64 << 10

// count returns the number of tokens of a piece, see splitter. If the piece is larger than partSize, count cuts it
// between characters, and the result may be a few tokens higher for each cut.
func (v *vocabulary) count(piece string) (n int) {
	for len(piece) > partSize {
		end := partSize
		for !utf8.RuneStart(piece[end]) {
			end--
		}
		n += v.merge(piece[:end])
		piece = piece[end:]
	}
	if v.find(piece) != none {
		return n + 1
	}
	return n + v.merge(piece)
}

// part is a part of a piece. merge begins with one part for each byte, and joins parts.
type part struct {
	previous, next int32  // the first bytes of the neighbours; -1 for no previous part
	joined         uint32 // the position of the token that this part and the next part make
}

// fewBytes is the maximum length of a piece for which merge allocates nothing. Most words are shorter.
const fewBytes = 64

// merge counts the tokens of a piece by byte-pair encoding, in O(n log n). In each step, it joins the two neighbouring
// parts that make the token of the lowest rank. If several pairs make this token, it joins the leftmost pair. It stops
// when no two neighbours make a token.
func (v *vocabulary) merge(piece string) int {
	var fewParts [fewBytes + 1]part
	var fewPairs [2 * fewBytes]pair
	n, parts, pairs := len(piece), fewParts[:], pairHeap(fewPairs[:0])
	if n > fewBytes {
		parts, pairs = make([]part, n+1), make(pairHeap, 0, 2*n)
	}
	offer := func(at int) {
		end := parts[at].next
		joined := uint32(none)
		if int(end) < n {
			joined = v.find(piece[at:parts[end].next])
		}
		if parts[at].joined = joined; joined != none {
			pairs = pairs.push(pair(joined)<<32 | pair(at))
		}
	}
	for i := range n + 1 {
		parts[i].previous, parts[i].next = int32(i-1), int32(i+1)
	}
	for i := range n {
		offer(i)
	}
	count := n
	for len(pairs) > 0 {
		p := pairs[0]
		pairs = pairs.pop()
		at := int(uint32(p))
		if parts[at].joined != uint32(p>>32) {
			continue // since the push, one of the two parts was joined with another part
		}
		gone, end := parts[at].next, parts[parts[at].next].next
		parts[at].next, parts[end].previous, parts[gone].joined = end, int32(at), none
		count--
		offer(at)
		if before := parts[at].previous; before >= 0 {
			offer(int(before))
		}
	}
	return count
}

// pair is two neighbouring parts that make a token: the position of that token in the high half, and the first byte of
// the left part in the low half. So the smallest pair is the next one to join.
type pair uint64

// pairHeap is a binary heap with the smallest pair first. Package container/heap would allocate for each pair.
type pairHeap []pair

func (h pairHeap) push(p pair) pairHeap {
	h = append(h, p)
	i := len(h) - 1
	for i > 0 && p < h[(i-1)/2] {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = p
	return h
}

// pop removes h[0].
func (h pairHeap) pop() pairHeap {
	last := h[len(h)-1]
	h = h[:len(h)-1]
	if len(h) == 0 {
		return h
	}
	i := 0
	for child := 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if last <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = last
	return h
}
