package window

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// MaxDimensions is how many dimensions a [Vector] can have.
const MaxDimensions = 4096

// vectorHead is what a Vector begins with: 8 bytes of the hash of its model's name, and its length as a float32.
const vectorHead = 8 + 4

// Vector is what a text means, by the words of an embedding model: a direction, each dimension a signed byte of the largest
// one's 127th. Its bytes are the form in which it is stored, some 1.5 KB where the model has 1,536 dimensions. nil is none.
// Vectors compare only if the same model made both. What a text says can be guessed from it: it is as private as that.
type Vector []byte

var errVector = errors.New("not a vector of 1 to 4,096 finite numbers that are not all zero")

// VectorOf returns the vector that a model gave as numbers; its error says that they are none: no dimensions or more than
// MaxDimensions, no number, or all of them zero.
func VectorOf(model string, numbers []float32) (Vector, error) {
	largest := 0.0
	for _, x := range numbers {
		if !(math.Abs(float64(x)) <= math.MaxFloat32) { // NaN is not
			return nil, errVector
		}
		largest = max(largest, math.Abs(float64(x)))
	}
	if largest == 0 || len(numbers) > MaxDimensions {
		return nil, errVector
	}
	v, squares := appendModel(make(Vector, 0, vectorHead+len(numbers)), model), 0.0
	v = v[:vectorHead]
	for _, x := range numbers {
		step := math.Round(float64(x) / largest * math.MaxInt8)
		squares += step * step
		v = append(v, byte(int8(step)))
	}
	binary.LittleEndian.PutUint32(v[8:], math.Float32bits(float32(math.Sqrt(squares))))
	return v, nil
}

func appendModel(b []byte, model string) []byte {
	hash := sha256.Sum256([]byte(model))
	return append(b, hash[:8]...)
}

// IsOf reports whether that model made the vector.
func (v Vector) MadeBy(model string) bool {
	return len(v) > vectorHead && string(v[:8]) == string(appendModel(make([]byte, 0, 8), model))
}

// comparable reports whether two vectors are there, of the same model and as many dimensions.
func (v Vector) comparable(w Vector) bool {
	return len(v) > vectorHead && len(v) == len(w) && string(v[:8]) == string(w[:8])
}

// cosine returns how near two vectors are that compare: 1 for the same direction, -1 for the opposite.
func (v Vector) cosine(w Vector) float64 {
	lengths := float64(v.length()) * float64(w.length())
	if !(lengths > 0) {
		return 0
	}
	return float64(dot(v[vectorHead:], w[vectorHead:])) / lengths
}

func (v Vector) length() float32 { return math.Float32frombits(binary.LittleEndian.Uint32(v[8:])) }

// dot is the sum of products of signed bytes, at most 4,096 of them. Four sums at once keep the processor busy.
func dot(a, b []byte) int32 {
	var s0, s1, s2, s3 int32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]byte)(a), (*[8]byte)(b) // no more bounds to check
		s0 += int32(int8(x[0]))*int32(int8(y[0])) + int32(int8(x[4]))*int32(int8(y[4]))
		s1 += int32(int8(x[1]))*int32(int8(y[1])) + int32(int8(x[5]))*int32(int8(y[5]))
		s2 += int32(int8(x[2]))*int32(int8(y[2])) + int32(int8(x[6]))*int32(int8(y[6]))
		s3 += int32(int8(x[3]))*int32(int8(y[3])) + int32(int8(x[7]))*int32(int8(y[7]))
		a, b = a[8:], b[8:]
	}
	for i := range min(len(a), len(b)) {
		s0 += int32(int8(a[i])) * int32(int8(b[i]))
	}
	return s0 + s1 + s2 + s3
}

// fusion is how many places at the top weigh nearly alike where two orders are fused. The usual 60 is for lists of thousands; among
// the exchanges of a conversation it would have the middle of one order undo the top of the other (recall_test.go measures it).
const fusion = 5

// FuseScores returns how near each exchange is to the new message by meaning: words are the exchanges' scores by [LexicalScores],
// vectors are the exchanges' own, nil where there is none, and asked is the new message's. Where no vector compares with asked, it
// returns words. The scores are those of [Message.Similarity]; they compare with each other only.
//
// An exchange has two places, by meaning and by words, and its score is of both (reciprocal rank fusion). Scores on two
// scales cannot be compared, but places can: one that has no vector is taken to be as far by meaning as it is by words, and
// its place by meaning is spread over all exchanges where only some have a vector.
func FuseScores(words []float64, asked Vector, vectors []Vector) []float64 {
	var have []int
	near := make([]float64, 0, len(vectors))
	for i, v := range vectors {
		if v.comparable(asked) {
			have = append(have, i)
			near = append(near, v.cosine(asked))
		}
	}
	if len(have) == 0 {
		return words
	}
	byWords := places(words)
	byMeaning := slices.Clone(byWords)
	for i, place := range places(near) {
		byMeaning[have[i]] = place
	}
	scores, n := make([]float64, len(words)), float64(len(words))
	for i := range scores {
		scores[i] = 1/(fusion+n*byWords[i]) + 1/(fusion+n*byMeaning[i])
	}
	return scores
}

// places returns of each score which share of all scores is higher, from 0 for the highest; those that are equal share the place
// in their middle.
func places(scores []float64) []float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	places := make([]float64, len(scores))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && scores[order[to]] == scores[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			places[i] = float64(from+to-1) / 2 / float64(len(order))
		}
		from = to
	}
	return places
}
