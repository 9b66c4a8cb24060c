package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// randomNumbers returns random numbers in one of eight main directions, like the embeddings of texts of one conversation.
func randomNumbers(random *rand.Rand, dimensions int) []float32 {
	numbers := make([]float32, dimensions)
	topic := random.IntN(8)
	for i := range numbers {
		numbers[i] = float32(random.NormFloat64() + math.Sin(float64((topic+1)*i)))
	}
	return numbers
}

func vectorOf(t testing.TB, model string, numbers ...float32) Vector {
	t.Helper()
	v, err := VectorOf(model, numbers)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The test compares two rankings of 500 exchanges: by signed bytes and by float32.
func TestVector_RanksNearlyAsFloat32Does(t *testing.T) {
	const exchanges, queries, top = 500, 10, 50
	for _, dimensions := range []int{256, 1536, 4096} {
		random := rand.New(rand.NewPCG(1, uint64(dimensions)))
		var exact [][]float32
		var vectors []Vector
		for range exchanges {
			exact = append(exact, randomNumbers(random, dimensions))
			vectors = append(vectors, vectorOf(t, "m", exact[len(exact)-1]...))
		}
		worst, kept := 0.0, 0
		for range queries {
			asked := randomNumbers(random, dimensions)
			query := vectorOf(t, "m", asked...)
			floats, bytes := make([]float64, exchanges), make([]float64, exchanges)
			for i := range exact {
				floats[i], bytes[i] = cosineOf(asked, exact[i]), query.cosine(vectors[i])
				worst = max(worst, math.Abs(floats[i]-bytes[i]))
			}
			byFloats, byBytes := ranks(floats), ranks(bytes)
			for i := range byFloats {
				if byFloats[i]*exchanges < top && byBytes[i]*exchanges < top {
					kept++
				}
			}
		}
		share := float64(kept) / (queries * top)
		t.Logf("%d dimensions, %d bytes: a cosine is off by %.4f at most; of the nearest %d, %.1f %% are the same", dimensions, len(vectors[0]), worst, top, 100*share)
		if worst > 0.005 || share < 0.95 {
			t.Errorf("%d dimensions: a cosine is off by %f, and a share of %f of the nearest exchanges is the same", dimensions, worst, share)
		}
	}
}

func cosineOf(a, b []float32) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return dot / math.Sqrt(aa*bb)
}

func TestVectorOf_Invalid_Error(t *testing.T) {
	nan, infinite := float32(math.NaN()), float32(math.Inf(-1))
	for name, numbers := range map[string][]float32{
		"none": nil, "zeros": {0, 0, 0}, "NaN": {1, nan}, "NaN alone": {nan}, "infinite": {infinite, 1}, "too many": make([]float32, MaxDimensions+1),
	} {
		if len(numbers) > MaxDimensions {
			numbers[0] = 1
		}
		if v, err := VectorOf("m", numbers); err == nil || v != nil {
			t.Errorf("%s: VectorOf returned %v, %v", name, v, err)
		}
	}
	longest := make([]float32, MaxDimensions)
	for i := range longest {
		longest[i] = -math.MaxFloat32
	}
	if v := vectorOf(t, "m", longest...); math.Abs(v.cosine(v)-1) > 1e-6 || len(v) != vectorHead+MaxDimensions {
		t.Errorf("%d bytes, with a cosine of %f to itself", len(v), v.cosine(v))
	}
}

func TestVector_DifferentModels_NotCompared(t *testing.T) {
	one, two := vectorOf(t, "one", 1, 2, 3), vectorOf(t, "two", 1, 2, 3)
	words := []float64{3, 2, 1}
	for name, vectors := range map[string][]Vector{
		"another model": {two, two, two}, "other dimensions": {vectorOf(t, "one", 1, 2), vectorOf(t, "one", 1), nil}, "none": {nil, nil, nil},
		"garbage": {Vector("x"), Vector("0123456789ab"), Vector{}},
	} {
		if got := FuseScores(words, one, vectors); !slices.Equal(got, words) {
			t.Errorf("%s: FuseScores returned %v", name, got)
		}
	}
	if !one.MadeBy("one") || one.MadeBy("two") || Vector(nil).MadeBy("one") || one[:vectorHead].MadeBy("one") {
		t.Error("MadeBy is wrong")
	}
	if got := FuseScores(words, nil, []Vector{one, one, one}); !slices.Equal(got, words) {
		t.Errorf("without a vector of the new message: %v", got)
	}
}

// nearest returns the indexes of the exchanges in the order of their scores, the highest first.
func nearest(scores []float64) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order
}

func TestFuseScores_CombinesWordsAndMeaning(t *testing.T) {
	asked := vectorOf(t, "m", 1, 0)
	near, middle, far := vectorOf(t, "m", 1, 0), vectorOf(t, "m", 1, 1), vectorOf(t, "m", 0, 1)
	for _, test := range []struct {
		name    string
		words   []float64
		vectors []Vector
		want    []int
	}{
		{"no shared words: by meaning", []float64{0, 0, 0}, []Vector{far, near, middle}, []int{1, 2, 0}},
		{"equal in meaning: by words", []float64{1, 3, 2}, []Vector{near, near, near}, []int{1, 2, 0}},
		{"closest by both comes first", []float64{1, 3, 2}, []Vector{far, near, middle}, []int{1, 2, 0}},
		{"no vector: the rank by words counts twice", []float64{5, 0, 4, 0, 3}, []Vector{nil, near, middle, far, nil}, []int{0, 1, 2, 4, 3}},
		{"a single vector changes nothing", []float64{3, 2, 1}, []Vector{nil, far, nil}, []int{0, 1, 2}},
	} {
		if got := nearest(FuseScores(test.words, asked, test.vectors)); !slices.Equal(got, test.want) {
			t.Errorf("%s: the order is %v, want %v (scores %v)", test.name, got, test.want, FuseScores(test.words, asked, test.vectors))
		}
	}
}

// The test also checks that the scores do not depend on the order of the exchanges.
func TestFuseScores_CloserByBoth_ScoresHigher(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(r, "exchanges")
		asked := vectorOf(t, "m", 1, 0)
		words, vectors := make([]float64, n), make([]Vector, n)
		for i := range n {
			words[i] = float64(rapid.IntRange(0, 5).Draw(r, "words"))
			if rapid.Bool().Draw(r, "vector") {
				vectors[i] = vectorOf(t, "m", float32(rapid.IntRange(-5, 5).Draw(r, "x")), 1)
			}
		}
		scores := FuseScores(words, asked, vectors)
		for i := range n {
			for j := range n {
				if vectors[i] == nil || vectors[j] == nil {
					if vectors[i] == nil && vectors[j] == nil && words[i] > words[j] && scores[i] <= scores[j] {
						r.Fatalf("without vectors, exchange %d scores no higher than %d: %v", i, j, scores)
					}
					continue
				}
				if words[i] > words[j] && vectors[i].cosine(asked) > vectors[j].cosine(asked) && scores[i] <= scores[j] {
					r.Fatalf("exchange %d scores no higher than %d: %v", i, j, scores)
				}
			}
		}
		backwards := slices.Clone(vectors)
		slices.Reverse(backwards)
		back := slices.Clone(words)
		slices.Reverse(back)
		got := FuseScores(back, asked, backwards)
		slices.Reverse(got)
		if !slices.Equal(got, scores) {
			r.Fatalf("the scores are %v, and in reverse order %v", scores, got)
		}
	})
}

func BenchmarkFuseScores(b *testing.B) {
	for _, exchanges := range []int{500, 1000} {
		b.Run(fmt.Sprint(exchanges, " exchanges of 1,536 dimensions"), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			asked := vectorOf(b, "m", randomNumbers(random, 1536)...)
			words, vectors := make([]float64, exchanges), make([]Vector, exchanges)
			for i := range vectors {
				words[i], vectors[i] = random.Float64(), vectorOf(b, "m", randomNumbers(random, 1536)...)
			}
			b.ReportAllocs()
			for b.Loop() {
				FuseScores(words, asked, vectors)
			}
		})
	}
}
