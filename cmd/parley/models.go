package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"parley/server"
	"parley/stream"
	"parley/stream/models"
	"parley/stream/openai"
)

// modelFlags are the flags of serve that configure the models.
type modelFlags struct {
	Models           string `env:"PARLEY_MODELS" placeholder:"JSON" help:"Several models, as a JSON list or @FILE, for example [{\"name\":\"fast\",\"baseURL\":\"https://api.openai.com/v1\",\"apiKeyEnv\":\"OPENAI_KEY\",\"model\":\"gpt-5-mini\"}]. The first is the default. Fields: name, baseURL, apiKeyEnv (the environment variable that has the key), model, contextTokens; fallback (a list of names) and continues (prefill, vllm, instruct, restart or no) are checked, and have no effect yet. Use either this or the three settings for one model."`
	Model            string `env:"PARLEY_MODEL" placeholder:"NAME" help:"Name of the model. Default: the first that the model server lists."`
	BaseURL          string `name:"base-url" env:"OPENAI_BASE_URL" placeholder:"URL" help:"URL of an OpenAI-compatible API, including its version. Default: a local Ollama or llama.cpp if one responds, otherwise a simulated model until one responds."`
	APIKey           string `name:"api-key" env:"OPENAI_API_KEY" placeholder:"KEY" help:"Key for that API. Set it in the environment: other users can see command lines."`
	RequireModel     bool   `env:"PARLEY_REQUIRE_MODEL" help:"Do not start without a real model, and let /readyz fail while the default model cannot be used. Set it in production."`
	EmbeddingModel   string `env:"PARLEY_EMBEDDING_MODEL" placeholder:"NAME" help:"Embedding model for sessions with the retention policy semantic. Default: none; these sessions compare words."`
	EmbeddingBaseURL string `name:"embedding-base-url" env:"PARLEY_EMBEDDING_BASE_URL" placeholder:"URL" help:"URL of the API of the embedding model. Default: the API of the default model, with its key."`
	EmbeddingAPIKey  string `name:"embedding-api-key" env:"PARLEY_EMBEDDING_API_KEY" placeholder:"KEY" help:"Key for the API of the embedding model. Set it in the environment: other users can see command lines."`
}

// maxModelsFile is the maximum size of the file of PARLEY_MODELS, in bytes. 64 models need about 16 KiB.
const maxModelsFile = 1 << 20

// check finds contradictions between the flags. Its errors repeat no value, because a URL may contain a password.
func (f *modelFlags) check() error {
	for _, u := range []struct{ flag, value string }{
		{"--base-url (OPENAI_BASE_URL)", f.BaseURL}, {"--embedding-base-url (PARLEY_EMBEDDING_BASE_URL)", f.EmbeddingBaseURL},
	} {
		if u.value != "" && originOf(u.value) == "" {
			return fmt.Errorf("%s: invalid URL: it must begin with http:// or https:// and a host, for example http://127.0.0.1:11434/v1", u.flag)
		}
	}
	if f.EmbeddingModel == "" {
		for _, set := range []struct{ flag, value string }{
			{"--embedding-base-url (PARLEY_EMBEDDING_BASE_URL)", f.EmbeddingBaseURL}, {"--embedding-api-key (PARLEY_EMBEDDING_API_KEY)", f.EmbeddingAPIKey},
		} {
			if set.value != "" {
				return fmt.Errorf("%s is set without an embedding model: set --embedding-model (PARLEY_EMBEDDING_MODEL) too", set.flag)
			}
		}
	}
	if f.Models == "" {
		if f.APIKey != "" && f.BaseURL == "" && f.Model == "" {
			return errors.New("--api-key (OPENAI_API_KEY) is set without a model: set --model (PARLEY_MODEL) too, because many models of OpenAI cannot chat")
		}
		return nil
	}
	for _, set := range []struct{ flag, value string }{
		{"--base-url (OPENAI_BASE_URL)", f.BaseURL}, {"--model (PARLEY_MODEL)", f.Model},
	} {
		if set.value != "" {
			return bothSet(set.flag)
		}
	}
	return nil
}

func bothSet(flag string) error {
	return fmt.Errorf("--models (PARLEY_MODELS) and %s are both set: use one of them", flag)
}

// configs returns the configured models. Without configuration, it returns one model without BaseURL.
func (f *modelFlags) configs() ([]models.Config, error) {
	if f.Models != "" {
		return f.several()
	}
	config := models.Config{Name: models.DefaultName, BaseURL: f.BaseURL, Key: f.APIKey, Model: f.Model}
	if models.IsName(f.Model) {
		config.Name = f.Model
	}
	if f.BaseURL == "" && f.APIKey != "" {
		config.BaseURL = openai.DefaultBaseURL
	}
	return []models.Config{config}, nil
}

// several returns the models of PARLEY_MODELS. OPENAI_API_KEY may be set too, if a model names it as its variable.
func (f *modelFlags) several() ([]models.Config, error) {
	text, err := readSetting(f.Models)
	if err != nil {
		return nil, fmt.Errorf("--models (PARLEY_MODELS): %w", err)
	}
	named := false
	configs, err := models.Parse(text, func(variable string) (string, bool) {
		named = named || variable == "OPENAI_API_KEY"
		return os.LookupEnv(variable)
	})
	if err != nil {
		return nil, fmt.Errorf("--models (PARLEY_MODELS): %w", err)
	}
	if f.APIKey != "" && !named {
		return nil, bothSet("--api-key (OPENAI_API_KEY)")
	}
	return configs, nil
}

// readSetting returns value, or the content of the file if value has the form @FILE.
func readSetting(value string) (string, error) {
	name, isFile := strings.CutPrefix(value, "@")
	if !isFile {
		return value, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxModelsFile+1))
	if err == nil && len(text) > maxModelsFile {
		err = fmt.Errorf("%s is larger than 1 MiB", name)
	}
	return string(text), err
}

// openSet returns the configured models, without probes.
func (f *modelFlags) openSet(metrics *server.Metrics, log *slog.Logger) (*models.Set, error) {
	configs, err := f.configs()
	if err != nil {
		return nil, err
	}
	return models.Open(models.Options{Models: configs, Wrap: metrics.Model, Log: log}), nil
}

// openModels returns the models, and starts their probes. A configured model server need not run yet.
func (f *modelFlags) openModels(ctx context.Context, metrics *server.Metrics, log *slog.Logger) (*models.Set, error) {
	set, err := f.openSet(metrics, log)
	if err != nil {
		return nil, err
	}
	if !set.Find(ctx) {
		for _, needs := range []struct {
			flag string
			set  bool
		}{
			{"--model (PARLEY_MODEL)", f.Model != ""},
			{"--require-model (PARLEY_REQUIRE_MODEL)", f.RequireModel},
			{"--embedding-model (PARLEY_EMBEDDING_MODEL)", f.EmbeddingModel != "" && f.EmbeddingBaseURL == ""},
		} {
			if needs.set {
				return nil, noServer(needs.flag)
			}
		}
	}
	set.Start()
	return set, nil
}

// embedder returns the configured embedding model; nil if there is none.
func (f *modelFlags) embedder(set *models.Set) stream.Embedder {
	if f.EmbeddingModel == "" {
		return nil
	}
	api := openai.Options{BaseURL: f.EmbeddingBaseURL, Key: f.EmbeddingAPIKey, Name: f.EmbeddingModel}
	if api.BaseURL == "" {
		of := set.Default().Server()
		if api.BaseURL = of.BaseURL; api.Key == "" { // the key of one server is never sent to another
			api.Key = of.Key
		}
	}
	return openai.NewEmbedder(api)
}

// noServer returns the error for a flag that needs a model server, although none is configured or detected.
func noServer(flag string) error {
	return fmt.Errorf("%s is set, but no local model server responds: set --base-url (OPENAI_BASE_URL), --models (PARLEY_MODELS), or --api-key (OPENAI_API_KEY) for OpenAI", flag)
}

// described returns the description of the models for the start-up text.
func described(set *models.Set, embedder stream.Embedder) string {
	server, configured := set.Default().Server(), set.Default().Config()
	text := server.Name
	switch {
	case set.Simulated():
		text = "the built-in simulated model: NO AI. For a real model, set OPENAI_BASE_URL or start Ollama"
	case configured.BaseURL == "":
		text += " at " + server.BaseURL
	case configured.Name != models.DefaultName:
		text = configured.Name
	case server.Name == "":
		text = "the first that the model server lists"
	}
	if others := set.Names()[1:]; len(others) > 0 {
		text += " (default), " + strings.Join(others, ", ")
	}
	if embedder != nil {
		text += ", embeddings by " + embedder.Name()
	}
	return text
}
