package window

import (
	"cmp"
	"math"
	"slices"
)

// The parameters of BM25 with their usual values: how soon repeating a word adds nothing, and how much a long text is
// penalised.
const (
	saturation = 1.2
	byLength   = 0.75
)

// LexicalScores returns how close each exchange is to the new message by the words that they share (Okapi BM25). A
// rare word scores high. A word that every exchange has, like the function words of any language, scores next to
// nothing, so no list of stop words is needed. 0 means nothing in common. The scores are for [Message.Similarity] and
// comparable only with each other.
//
// Its time is proportional to the number of terms. Measured on one core for 1,000 exchanges of 20,000 characters: 12
// ms for a question, 35 ms for 10,000 characters.
func LexicalScores(query Terms, exchanges []Terms) []float64 {
	asked := newLookup(query)
	in := make([]int, len(query)) // how many exchanges have the query's term
	lengths, all := make([]float64, len(exchanges)), 0.0
	for e, exchange := range exchanges {
		for _, term := range exchange {
			lengths[e] += float64(term.Count)
			if !asked.may(term.Hash) {
				continue
			}
			if i, ok := asked.find(term.Hash); ok {
				in[i]++
			}
		}
		all += lengths[e]
	}
	n := float64(len(exchanges))
	weights := make([]float64, len(query))
	for i, having := range in {
		weights[i] = math.Log(1 + (n-float64(having)+0.5)/(float64(having)+0.5))
	}
	scores := make([]float64, len(exchanges))
	for e, exchange := range exchanges {
		norm := saturation * (1 - byLength + byLength*lengths[e]*n/max(all, 1))
		for _, term := range exchange {
			if !asked.may(term.Hash) {
				continue
			}
			if i, ok := asked.find(term.Hash); ok {
				times := float64(term.Count)
				scores[e] += weights[i] * times * (saturation + 1) / (times + norm)
			}
		}
	}
	return scores
}

// lookup finds terms of a query by their hash. A bitmap of the last 16 bits of the hash rules out nearly all others.
type lookup struct {
	terms Terms
	bits  [1 << 16 / 64]uint64
}

func newLookup(terms Terms) *lookup {
	l := &lookup{terms: terms}
	for _, term := range terms {
		l.bits[term.Hash>>6&(1<<10-1)] |= 1 << (term.Hash & 63)
	}
	return l
}

// may reports whether the query may have a term; find decides. It is separate so that it can be inlined.
func (l *lookup) may(hash uint32) bool {
	return l.bits[hash>>6&(1<<10-1)]&(1<<(hash&63)) != 0
}

func (l *lookup) find(hash uint32) (i int, ok bool) {
	return slices.BinarySearchFunc(l.terms, hash, func(t Term, hash uint32) int { return cmp.Compare(t.Hash, hash) })
}
