package window

import (
	"cmp"
	"math"
	"slices"
)

// saturation and byLength are the parameters k1 and b of BM25, with their usual values. With a higher saturation,
// repeated words count more. With a higher byLength, long texts score lower.
const (
	saturation = 1.2
	byLength   = 0.75
)

// LexicalScores scores each exchange by the words that it shares with the new message (Okapi BM25). An exchange that
// shares no word scores 0. A rare word scores high. A word that every exchange has, like the function words of any
// language, scores nearly 0, so no list of stop words is needed. The scores are for [Message.Similarity]. Only scores
// of the same call are comparable.
//
// The time is proportional to the number of terms. Measured on one core for 1,000 exchanges of 20,000 characters: 12 ms
// for a short question, 35 ms for a new message of 10,000 characters.
func LexicalScores(query Terms, exchanges []Terms) []float64 {
	asked := newLookup(query)
	in := make([]int, len(query)) // for each term of the query, the number of exchanges that have it
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

// lookup finds terms of a query by their hash. A bitmap of the last 16 bits of the hash rules out nearly all other terms.
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

// may reports whether the query may have a term with this hash. If so, find decides. may is a separate function so that
// the compiler inlines it.
func (l *lookup) may(hash uint32) bool {
	return l.bits[hash>>6&(1<<10-1)]&(1<<(hash&63)) != 0
}

func (l *lookup) find(hash uint32) (i int, ok bool) {
	return slices.BinarySearchFunc(l.terms, hash, func(t Term, hash uint32) int { return cmp.Compare(t.Hash, hash) })
}
