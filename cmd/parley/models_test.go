package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"parley/server"
)

// The key of one server must never be sent to another.
func TestEmbedder_EachConfiguration_ServerGetsItsOwnKey(t *testing.T) {
	var got []string
	serve := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = append(got, name+" "+r.Header.Get("Authorization"))
			fmt.Fprint(w, `{"data":[{"index":0,"embedding":[1,2,3]}]}`)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/v1"
	}
	model, other := serve("model"), serve("other")
	for name, test := range map[string]struct {
		flags modelFlags
		want  string
	}{
		"same server":                {modelFlags{BaseURL: model, APIKey: "one"}, "model Bearer one"},
		"same server, other key":     {modelFlags{BaseURL: model, APIKey: "one", EmbeddingAPIKey: "two"}, "model Bearer two"},
		"other server":               {modelFlags{BaseURL: model, APIKey: "one", EmbeddingBaseURL: other}, "other "},
		"other server, other key":    {modelFlags{BaseURL: model, APIKey: "one", EmbeddingBaseURL: other, EmbeddingAPIKey: "two"}, "other Bearer two"},
		"list of models":             {modelFlags{Models: `[{"name":"a","baseURL":"` + model + `"}]`}, "model "},
		"unknown name of the model":  {modelFlags{BaseURL: model}, "model "},
		"configured name and no key": {modelFlags{BaseURL: model, Model: "words"}, "model "},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			test.flags.EmbeddingModel = "meanings"
			set, err := test.flags.openSet(server.NewMetrics(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := test.flags.embedder(set).Embed(t.Context(), []string{"text"}); err != nil || !slices.Equal(got, []string{test.want}) {
				t.Errorf("the servers got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestModelFlags_FileOfModels_ReadAndBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "models.json")
	for name, test := range map[string]struct{ content, want string }{
		"valid":     {`[{"name":"a","baseURL":"http://h/v1"}]`, ""},
		"invalid":   {`[{"name":"a"}]`, "--models (PARLEY_MODELS): models[0].baseURL is missing"},
		"too large": {strings.Repeat(" ", maxModelsFile+1), "is larger than 1 MiB"},
	} {
		if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		configs, err := (&modelFlags{Models: "@" + file}).configs()
		if test.want == "" && (err != nil || len(configs) != 1) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, %v; want %q", name, configs, err, test.want)
		}
	}
}
