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

// TestServe_EmbeddingModel has a server as it is configured embed an exchange behind its reply.
func TestServe_EmbeddingModel(t *testing.T) {
	t.Parallel()
	type embedding struct {
		Model string
		Input []string
		Key   string
	}
	asked, model := make(chan embedding, 8), newWordsModel(t, time.Millisecond)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/embeddings" {
			model.answer(w, r)
			return
		}
		e := embedding{Key: r.Header.Get("Authorization")}
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		asked <- e
		fmt.Fprint(w, `{"data":[{"index":0,"embedding":[1,2,3]}],"usage":{"prompt_tokens":3}}`)
	}))
	t.Cleanup(provider.Close)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL="+provider.URL+"/v1", "OPENAI_API_KEY="+secretModel,
		"PARLEY_MODEL=words", "PARLEY_EMBEDDING_MODEL=meanings")
	if said := p.out.String(); !strings.Contains(said, "words, embeddings by meanings") {
		t.Errorf("it says that it is ready with\n%s", said)
	}
	session := p.must("POST", "/v1/sessions", map[string]any{
		"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"retentionPolicy": "semantic"},
	})["sessionId"].(string)
	p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "say 2"})
	select {
	case e := <-asked:
		if want := "say 2\n" + words(2); e.Model != "meanings" || e.Key != "Bearer "+secretModel || !slices.Equal(e.Input, []string{want}) {
			t.Errorf("the embedding model was asked %+v", e)
		}
	case <-time.After(timeout):
		t.Errorf("it was not asked:\n%s", p.errs)
	}
}
