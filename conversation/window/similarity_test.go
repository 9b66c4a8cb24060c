package window

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// All words of a line give the same term. No two lines share a term.
func TestTermsOf_FormsOfOneWord_OneTerm(t *testing.T) {
	lines := []string{
		"plan plans planned planning Plan PLANS Plan's", "box boxes", "city cities", "stop stopped stopping stops", "move moves moved moving",
		"allergy allergies", "reserve reserved reservation reservations", "café cafe CAFÉS cafe\u0301", "straße STRASSE strassen",
		"Wohnung Wohnungen", "Vertrag Vertrages", "niño niños nino", "día días", "Привет привет", "42", "4", "bus", "news new", "a", "i",
	}
	seen := make(map[uint32]string)
	for _, line := range lines {
		terms := slices.DeleteFunc(TermsOf(line), func(t Term) bool { return t.Hash == hash([]rune("s")) })
		if len(terms) != 1 {
			t.Errorf("%q has %d terms, want 1", line, len(terms))
		}
		for _, term := range terms {
			if other := seen[term.Hash]; other != "" {
				t.Errorf("%q and %q have the same term", line, other)
			}
			seen[term.Hash] = line
		}
	}
}

func TestTermsOf_Scripts_SplitIntoWords(t *testing.T) {
	for _, test := range []struct {
		text  string
		words int
	}{
		{"", 0}, {"  \n ", 0}, {"one, two; three!", 3}, {"e-mail", 2}, {"don't", 2}, {"snake_case", 2}, {"3.14", 2}, {"😀 hi", 1},
		{"東京都", 2}, {"東京 都", 1}, {"東京abc", 2}, {"สวัสดี", 5}, {"한국어", 2}, {"नमस्ते दुनिया", 2},
		{"مرحبا بالعالم", 2}, {"\xff\xfea", 1},
	} {
		if n := length(TermsOf(test.text)); n != test.words {
			t.Errorf("%q has %d words, want %d", test.text, n, test.words)
		}
	}
}

func length(terms Terms) (n int) {
	for _, term := range terms {
		n += int(term.Count)
	}
	return n
}

func TestTermsOf_AnyTexts_SortedAndEachWordCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.String(), 0, 4).Draw(t, "texts")
		terms := TermsOf(texts...)
		for i := 1; i < len(terms); i++ {
			if terms[i-1].Hash >= terms[i].Hash {
				t.Fatal("the terms are not sorted")
			}
		}
		apart := 0
		for _, text := range texts {
			apart += length(TermsOf(text))
		}
		var joined, read Terms
		for _, text := range texts {
			joined = joined.Merge(TermsOf(text))
		}
		if !slices.Equal(joined, terms) {
			t.Fatalf("the merged terms are %v, want %v", joined, terms)
		}
		if written, err := terms.AppendBinary(nil); err != nil || read.UnmarshalBinary(written) != nil || !slices.Equal(read, terms) {
			t.Fatalf("%v was read back as %v", terms, read)
		}
		if length(terms) != apart {
			t.Fatalf("the texts have %d words together and %d apart", length(terms), apart)
		}
	})
}

func TestTerms_UnmarshalInvalid_Error(t *testing.T) {
	written, _ := TermsOf("a text of several words").AppendBinary(nil)
	bad := [][]byte{{1}, {1, 0}, {0x80}, {1, 0x80}, {1, 1, 0, 1}, {0xff, 0xff, 0xff, 0xff, 0x7f, 1}, {0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1, 1},
		{1, 0xff, 0xff, 0xff, 0xff, 0x7f},
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, written[:len(written)-1]}
	for _, b := range bad {
		terms := Terms{{1, 1}}
		if err := terms.UnmarshalBinary(b); err == nil || len(terms) != 1 {
			t.Errorf("%v is read as %v", b, terms)
		}
	}
	var terms Terms
	if err := terms.UnmarshalBinary(nil); err != nil || len(terms) != 0 {
		t.Errorf("no bytes are read as %v, %v", terms, err)
	}
	if got := len(written); got > 5*6 {
		t.Errorf("five terms take %d bytes, want at most 30", got)
	}
}

// The test compares the scores with a plain implementation of BM25.
func TestLexicalScores_EqualPlainBM25(t *testing.T) {
	texts := []string{"the cat sat on the mat", "the dog ate the cat food", "birds", "the the the the", ""}
	const query = "Where did the cat eat dog food?"
	count := func(text, word string) (n float64) {
		for _, w := range strings.Fields(text) {
			if w == word {
				n++
			}
		}
		return n
	}
	var terms []Terms
	words := 0.0
	for _, text := range texts {
		terms = append(terms, TermsOf(text))
		words += float64(len(strings.Fields(text)))
	}
	got := LexicalScores(TermsOf(query), terms)
	for i, text := range texts {
		want := 0.0
		for _, word := range []string{"where", "did", "the", "cat", "eat", "dog", "food"} {
			having := 0.0
			for _, other := range texts {
				having += min(count(other, word), 1)
			}
			f, n := count(text, word), float64(len(texts))
			idf := math.Log((n-having+0.5)/(having+0.5) + 1)
			want += idf * f * 2.2 / (f + 1.2*(0.25+0.75*float64(len(strings.Fields(text)))/(words/n)))
		}
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("%q scores %v, want %v", text, got[i], want)
		}
	}
}

func TestLexicalScores_EmptyInput_Zero(t *testing.T) {
	if got := LexicalScores(nil, []Terms{TermsOf("a"), nil}); !slices.Equal(got, []float64{0, 0}) {
		t.Error(got)
	}
	if got := LexicalScores(TermsOf("a"), nil); len(got) != 0 {
		t.Error(got)
	}
}

// randomText returns 10,000 characters of random words.
func randomText(random *rand.Rand) string {
	var b strings.Builder
	for b.Len() < 10_000 {
		for range 2 + random.IntN(8) {
			b.WriteByte(byte('a' + random.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()[:10_000]
}

func TestTermsOf_20000Characters_AtMost10000Words(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		if n := length(TermsOf(randomText(random), randomText(random))); n > 20_000/2 {
			t.Fatalf("%d words in 20,000 characters", n)
		}
	}
}

// BenchmarkLexicalScores scores 1,000 exchanges of 20,000 characters each.
func BenchmarkLexicalScores(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	exchanges := make([]Terms, 1000)
	for i := range exchanges {
		if exchanges[i] = exchanges[max(i-100, 0)]; i < 100 {
			exchanges[i] = TermsOf(randomText(random), randomText(random))
		}
	}
	for name, query := range map[string]string{"question": "where did we put the spare key of the shed", "10000-characters": randomText(random)} {
		b.Run(name, func(b *testing.B) {
			terms := TermsOf(query)
			b.ReportAllocs()
			for b.Loop() {
				LexicalScores(terms, exchanges)
			}
		})
	}
}

func BenchmarkTermsOf(b *testing.B) {
	exchange := strings.Repeat("The plumber repaired the leaking taps in our kitchen yesterday, and he'll come again. ", 235)[:20_000]
	b.SetBytes(int64(len(exchange)))
	b.ReportAllocs()
	for b.Loop() {
		TermsOf(exchange)
	}
}

func TestPriorityOf_InvalidValue_Normal(t *testing.T) {
	for metadata, want := range map[string]float64{
		``: 0, `{}`: 0, `null`: 0, `[]`: 0, `{"priority":null}`: 0, `{"priority":"normal"}`: 0, `{"priority":"high"}`: High, `{"priority":"low"}`: Low,
		`{"priority":3}`: 3, `{"priority":-0.5}`: -0.5, `{"priority":1e999}`: 0, `{"priority":"HIGH"}`: 0, `{"Priority":"high"}`: 0,
		`{"priority":"5"}`: 0, `{"priority":true}`: 0, `{"priority":{"high":1}}`: 0, `{"priority":"high"`: 0, `{"a":{"priority":"high"}}`: 0,
	} {
		if got := PriorityOf(json.RawMessage(metadata)); got != want {
			t.Errorf("the priority in %s is %v, want %v", metadata, got, want)
		}
	}
	if !(Low < Normal && Normal < High) {
		t.Error("the named priorities are out of order")
	}
}
