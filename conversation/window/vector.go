package window

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// MaxDimensions is the maximum number of dimensions of a [Vector].
const MaxDimensions = 4096

// vectorHead is the number of bytes before a Vector's dimensions. 8 bytes are from the hash of the model's name, and 4
// are the Euclidean length as a float32.
const vectorHead = 8 + 4

// Vector is an embedding of a text; only its direction counts. Each dimension is a signed byte, scaled so that the
// largest absolute value is 127. A test shows that the ranking is nearly the same as with float32. A vector of 1,536
// dimensions takes about 1.5 KB in memory and in a store. nil means that the text has no embedding. Embeddings of
// different models are never compared. A text can be guessed from its vector, so a vector is as private as the text.
type Vector []byte

var errVector = errors.New("not a vector of 1 to 4,096 finite numbers that are not all zero")

// VectorOf returns the vector of a model's numbers. It returns an error if numbers is empty, has more than
// MaxDimensions numbers, has an infinity or NaN, or is all zero.
func VectorOf(model string, numbers []float32) (Vector, error) {
	largest := 0.0
	for _, x := range numbers {
		if !(math.Abs(float64(x)) <= math.MaxFloat32) { // also true for NaN
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

// MadeBy reports whether the named model made the vector.
func (v Vector) MadeBy(model string) bool {
	return len(v) > vectorHead && string(v[:8]) == string(appendModel(make([]byte, 0, 8), model))
}

// comparable reports whether v and w are vectors of the same model with the same number of dimensions.
func (v Vector) comparable(w Vector) bool {
	return len(v) > vectorHead && len(v) == len(w) && string(v[:8]) == string(w[:8])
}

// cosine returns the cosine of the angle between two comparable vectors: 1 for the same direction, -1 for the opposite
// one.
func (v Vector) cosine(w Vector) float64 {
	lengths := float64(v.length()) * float64(w.length())
	if !(lengths > 0) {
		return 0
	}
	return float64(dot(v[vectorHead:], w[vectorHead:])) / lengths
}

func (v Vector) length() float32 { return math.Float32frombits(binary.LittleEndian.Uint32(v[8:])) }

// dot returns the dot product of two lists of signed bytes. With at most 4,096 bytes, an int32 cannot overflow. Four
// separate sums let the processor execute additions in parallel.
func dot(a, b []byte) int32 {
	var s0, s1, s2, s3 int32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]byte)(a), (*[8]byte)(b) // so the compiler omits further bounds checks
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

// fusion is the constant k of reciprocal rank fusion. Roughly the first k ranks have nearly the same weight. The usual
// value of 60 is for lists of thousands. A conversation has fewer exchanges. With 60, a middle rank by words would
// cancel a top rank by embeddings, and the reverse (recall_test.go measures recall).
const fusion = 5

// FuseScores scores each exchange by its closeness to the new message, in words and in meaning. words are the
// exchanges' scores from [LexicalScores]. vectors are the exchanges' vectors, nil if missing. asked is the vector of
// the new message. If no vector is comparable with asked, FuseScores returns words. The scores are for
// [Message.Similarity]. Only scores of the same call are comparable.
//
// Scores on two scales cannot be added, but ranks can (reciprocal rank fusion). An exchange without a vector has the
// same rank by meaning as by words. If only some exchanges have vectors, their ranks by meaning are spread over the
// ranks of all exchanges.
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
	byWords := ranks(words)
	byMeaning := slices.Clone(byWords)
	for i, rank := range ranks(near) {
		byMeaning[have[i]] = rank
	}
	scores, n := make([]float64, len(words)), float64(len(words))
	for i := range scores {
		scores[i] = 1/(fusion+n*byWords[i]) + 1/(fusion+n*byMeaning[i])
	}
	return scores
}

// ranks returns the rank of each score as a share: the fraction of all scores that are higher, so 0 for the highest
// score. Equal scores get the mean of their ranks.
func ranks(scores []float64) []float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	shares := make([]float64, len(scores))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && scores[order[to]] == scores[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			shares[i] = float64(from+to-1) / 2 / float64(len(order))
		}
		from = to
	}
	return shares
}
