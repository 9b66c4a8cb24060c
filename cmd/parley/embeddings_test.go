package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// The server takes its embedding model from the environment and must embed an exchange after its reply has completed.
func TestServe_EmbeddingModel_EmbedsExchange(t *testing.T) {
	t.Parallel()
	type embedding struct {
		Model string
		Input []string
		Key   string
	}
	requests, model := make(chan embedding, 8), newWordsModel(t, time.Millisecond)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/embeddings" {
			model.answer(w, r)
			return
		}
		e := embedding{Key: r.Header.Get("Authorization")}
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		requests <- e
		fmt.Fprint(w, `{"data":[{"index":0,"embedding":[1,2,3]}],"usage":{"prompt_tokens":3}}`)
	}))
	t.Cleanup(provider.Close)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL="+provider.URL+"/v1", "OPENAI_API_KEY="+secretModel,
		"PARLEY_MODEL=words", "PARLEY_EMBEDDING_MODEL=meanings")
	if output := p.out.String(); !strings.Contains(output, "words, embeddings by meanings") {
		t.Errorf("the start-up text does not name the embedding model:\n%s", output)
	}
	session := p.must("POST", "/v1/sessions", map[string]any{
		"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"retentionPolicy": "semantic"},
	})["sessionId"].(string)
	p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "say 2"})
	select {
	case e := <-requests:
		if want := "say 2\n" + words(2); e.Model != "meanings" || e.Key != "Bearer "+secretModel || !slices.Equal(e.Input, []string{want}) {
			t.Errorf("the embedding request is %+v", e)
		}
	case <-time.After(timeout):
		t.Errorf("no embedding request arrived:\n%s", p.errs)
	}
}
