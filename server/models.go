package server

import (
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"parley/server/api"
	"parley/stream/models"
	"parley/stream/openai"
)

// readiness is the response of /readyz. It describes the default model: its state and, if the model cannot be used, the problem
// as a word and as a text. Both come from a table, because the response is public.
type readiness struct {
	Status  string         `json:"status"`
	Model   models.State   `json:"model"`
	Reason  openai.Problem `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
}

// modelUnavailable returns the error of /readyz if the server requires a model and the default model cannot be used.
func modelUnavailable(status models.Status) error {
	e, _ := api.Describe(api.ErrModel)
	if status.Problem != "" {
		e.Message = "The default model cannot be used: " + status.Problem.Meaning() + "."
	}
	return e
}

// listedModel is a model in the response of GET /v1/models. The first four fields are those of OpenAI's list.
type listedModel struct {
	ID            string         `json:"id"`
	Object        string         `json:"object"`
	Created       int64          `json:"created"` // in seconds since 1970
	OwnedBy       string         `json:"owned_by"`
	Default       bool           `json:"default"`
	State         models.State   `json:"state"`
	Reason        openai.Problem `json:"reason,omitempty"`
	ContextTokens int            `json:"contextTokens,omitempty"`
	ContextSource models.Source  `json:"contextSource"`
}

// listModels is GET /v1/models. The list has at most models.MaxModels models, so it has no pages.
func (s *Server) listModels(*gin.Context) (any, error) {
	list := make([]listedModel, 0, len(s.Models.Models()))
	for i, m := range s.Models.Models() {
		status := m.Status()
		row := listedModel{
			ID: m.Name(), Object: "model", Created: s.Models.Opened().Unix(), OwnedBy: "operator",
			Default: i == 0, State: status.State, Reason: status.Problem,
		}
		if status.State == models.Simulated {
			row.OwnedBy = "parley"
		}
		row.ContextTokens, row.ContextSource = m.Context()
		list = append(list, row)
	}
	return gin.H{"object": "list", "data": list}, nil
}

// mountModels registers the metrics of the models. Their labels are the configured names.
func (m *Metrics) mountModels(set *models.Set) {
	truth := map[bool]float64{true: 1}
	for _, model := range set.Models() {
		for _, gauge := range []struct {
			name, help string
			value      func() float64
		}{
			{"parley_model_ready", "1 if the model is ready, otherwise 0.",
				func() float64 { return truth[model.Status().State == models.Ready] }},
			{"parley_model_simulated", "1 if the simulated model answers, because no model is configured.",
				func() float64 { return truth[model.Status().State == models.Simulated] }},
			{"parley_model_context_tokens", "Size of the model's context in the provider's tokens; 0 if unknown.",
				func() float64 { return float64(model.ContextTokens()) }},
			{"parley_model_token_scale", "The provider's tokens for one token of the server's estimate.", model.Scale},
		} {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: gauge.name, Help: gauge.help, ConstLabels: prometheus.Labels{"model": model.Name()},
			}, gauge.value))
		}
	}
}
