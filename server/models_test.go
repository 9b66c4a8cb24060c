package server_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"parley/auth"
	"parley/conversation/service"
	"parley/server"
	"parley/stream/models"
)

// probed returns a set of two models. The model "deep" is found on a server, and the server of the default model "fast" refuses
// the key.
func probed(t *testing.T) *models.Set {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"large","object":"model","max_model_len":32768}]}`))
	}))
	t.Cleanup(provider.Close)
	set := models.Open(models.Options{Log: slog.New(slog.DiscardHandler), Models: []models.Config{
		{Name: "fast", BaseURL: provider.URL + "/v1", Model: "large", ContextTokens: 8192},
		{Name: "deep", BaseURL: provider.URL + "/v1", Key: "sk-secret"},
	}})
	set.Start()
	t.Cleanup(set.Close)
	for _, m := range set.Models() {
		for late := time.Now().Add(testTimeout); m.Status().State == models.Unprobed; time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatal("the model was not probed")
			}
		}
	}
	return set
}

func TestModels_List_ShowsStateAndContext(t *testing.T) {
	t.Parallel()
	set := probed(t)
	p := start(t, echo, func(o *server.Options, _ *service.Options) { o.Models = set })
	a := p.call("GET", "/v1/models", nil, "Authorization", "Bearer "+p.key("default", auth.ReadSessions))
	opened := float64(set.Opened().Unix())
	want := map[string]any{"object": "list", "data": []any{
		map[string]any{"id": "fast", "object": "model", "created": opened, "owned_by": "operator", "default": true,
			"state": "unreachable", "reason": "wrong_key", "contextTokens": 8192.0, "contextSource": "configured"},
		map[string]any{"id": "deep", "object": "model", "created": opened, "owned_by": "operator", "default": false,
			"state": "ready", "contextTokens": 32768.0, "contextSource": "listed"},
	}}
	if a.status != 200 || !reflect.DeepEqual(a.body, want) {
		t.Errorf("%d %s, want %v", a.status, a.raw, want)
	}
	checkError(t, p.call("GET", "/v1/models", nil, "Authorization", "Bearer "+p.key("default", auth.ReadMessages)), 403, "insufficient_scope", "", "requiredScope")
	checkError(t, p.call("GET", "/v1/models?limit=1", nil), 400, "validation_error", "limit")
}

func TestReady_DefaultModelUnreachable_ReportedOrFails(t *testing.T) {
	t.Parallel()
	set := probed(t)
	for _, required := range []bool{false, true} {
		p := start(t, echo, func(o *server.Options, _ *service.Options) { o.Models, o.RequireModel = set, required })
		a := p.call("GET", "/readyz", nil, "Authorization", "")
		if required {
			checkError(t, a, 503, "service_unavailable", "")
			if message := a.body["error"].(map[string]any)["message"]; message != "The default model cannot be used: the model server refused the API key." {
				t.Errorf("the message is %q", message)
			}
			continue
		}
		want := map[string]any{"status": "ready", "model": "unreachable", "reason": "wrong_key", "message": "the model server refused the API key"}
		if a.status != 200 || !reflect.DeepEqual(a.body, want) {
			t.Errorf("%d %s, want %v", a.status, a.raw, want)
		}
	}
}
