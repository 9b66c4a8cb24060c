package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"parley/conversation"
	"parley/server/api"
	"parley/stream/models"
)

const (
	// maxStops and maxStop bound modelConfig.stop: the number of strings that OpenAI accepts, and the characters of each.
	maxStops, maxStop = 4, 256
	// maxSeed bounds modelConfig.seed on both sides of 0: JavaScript represents every whole number up to it exactly.
	maxSeed = 1 << 53
	// namesInError is the maximum number of models that an error names.
	namesInError = 10
)

// reasoningEfforts are the values of reasoning_effort that OpenAI documents. Most models accept only some of them.
var reasoningEfforts = []string{"none", "minimal", "low", "medium", "high", "xhigh"}

// settings are a change of a session's settings in a request. Metadata are a merge patch (RFC 7396), and so are the two
// configurations.
type settings struct {
	Metadata      api.Optional[json.RawMessage] `json:"metadata"`
	Instructions  api.Optional[string]          `json:"instructions"`
	ContextConfig api.Optional[contextConfig]   `json:"contextConfig"`
	ModelConfig   api.Optional[modelConfig]     `json:"modelConfig"`
}

type contextConfig struct {
	MaxTokens          api.Optional[int]    `json:"maxTokens"`
	CompressionEnabled api.Optional[bool]   `json:"compressionEnabled"`
	RetentionPolicy    api.Optional[string] `json:"retentionPolicy"`
}

type modelConfig struct {
	Model           api.Optional[string]   `json:"model"`
	Temperature     api.Optional[float64]  `json:"temperature"`
	TopP            api.Optional[float64]  `json:"topP"`
	MaxOutputTokens api.Optional[int]      `json:"maxOutputTokens"`
	Stop            api.Optional[[]string] `json:"stop"`
	Seed            api.Optional[int64]    `json:"seed"`
	ReasoningEffort api.Optional[string]   `json:"reasoningEffort"`
}

// check checks each field alone, without the session that the settings change.
func (s *Server) check(requested *settings) error {
	session := conversation.Session{Context: conversation.DefaultContextConfig}
	return requested.apply(&session, s.Conversation.Models, 0)
}

// change returns a function that changes a session as requested. The function checks the result too: the metadata after the merge,
// and the room in the window. It counts the tokens of the instructions once.
func (s *Server) change(requested *settings) func(*conversation.Session) error {
	tokens := 0
	if text := requested.Instructions.Value; text != nil && api.WrongText(*text) == "" {
		tokens = s.Conversation.Count(*text)
	}
	return func(session *conversation.Session) error {
		if err := requested.apply(session, s.Conversation.Models, tokens); err != nil {
			return err
		}
		return requested.blame(session.CheckWindow())
	}
}

// apply checks each requested setting and sets it in session. tokens is the number of tokens of the requested instructions.
func (r *settings) apply(session *conversation.Session, set *models.Set, tokens int) error {
	if err := r.applyMetadata(session); err != nil {
		return err
	}
	switch text := r.Instructions.Value; {
	case r.Instructions.Null:
		session.Instructions, session.InstructionTokens = "", 0
	case text != nil && api.WrongText(*text) != "":
		return api.Invalid("instructions", api.WrongText(*text))
	case text != nil:
		session.Instructions, session.InstructionTokens = *text, tokens
	}
	if r.ContextConfig.Null {
		session.Context = conversation.DefaultContextConfig
	} else if r.ContextConfig.Value != nil {
		if err := r.ContextConfig.Value.apply(&session.Context); err != nil {
			return err
		}
	}
	if r.ModelConfig.Null {
		session.Model = conversation.ModelConfig{}
	} else if r.ModelConfig.Value != nil {
		return r.ModelConfig.Value.apply(&session.Model, set)
	}
	return nil
}

func (r *settings) applyMetadata(session *conversation.Session) error {
	switch patch := r.Metadata.Value; {
	case r.Metadata.Null:
		session.Metadata = nil
	case patch == nil:
	case !api.ValidMetadata(*patch):
		return api.Invalid("metadata", api.WrongMetadata)
	default:
		merged := api.MergePatch(session.Metadata, *patch)
		if !api.ValidMetadata(merged) {
			return api.Invalid("metadata", "after the merge "+api.WrongMetadata)
		}
		session.Metadata = merged
	}
	return nil
}

// blame returns err, the error of CheckWindow, for a field that the request has.
func (r *settings) blame(err error) error {
	if err == nil || r.Instructions.Given() {
		return err
	}
	return api.Invalid("contextConfig.maxTokens", "leaves no room for a message beside the session's instructions")
}

func (r *contextConfig) apply(config *conversation.ContextConfig) error {
	byDefault := conversation.DefaultContextConfig
	if set(r.MaxTokens, &config.MaxTokens, byDefault.MaxTokens) && (config.MaxTokens < minWindow || config.MaxTokens > maxWindow) {
		return api.Invalid("contextConfig.maxTokens", fmt.Sprintf("must be a whole number from %d to %d", minWindow, maxWindow))
	}
	set(r.CompressionEnabled, &config.CompressionEnabled, byDefault.CompressionEnabled)
	policy := string(config.RetentionPolicy)
	set(r.RetentionPolicy, &policy, string(byDefault.RetentionPolicy))
	config.RetentionPolicy = conversation.RetentionPolicy(policy)
	switch config.RetentionPolicy {
	case conversation.FIFO, conversation.Priority, conversation.Semantic:
		return nil
	}
	return api.Invalid("contextConfig.retentionPolicy", "must be fifo, priority or semantic")
}

func (r *modelConfig) apply(config *conversation.ModelConfig, models *models.Set) error {
	if set(r.Model, &config.Model, "") {
		if _, ok := models.Lookup(config.Model); !ok || config.Model == "" {
			return api.Invalid("modelConfig.model", "must be a configured model: "+listed(models.Names()))
		}
	}
	if setPointer(r.Temperature, &config.Temperature) && !(*config.Temperature >= 0 && *config.Temperature <= 2) {
		return api.Invalid("modelConfig.temperature", "must be a number from 0 to 2")
	}
	if setPointer(r.TopP, &config.TopP) && !(*config.TopP > 0 && *config.TopP <= 1) {
		return api.Invalid("modelConfig.topP", "must be a number above 0 and at most 1")
	}
	if set(r.MaxOutputTokens, &config.MaxOutputTokens, 0) && (config.MaxOutputTokens < 1 || config.MaxOutputTokens > maxWindow) {
		return api.Invalid("modelConfig.maxOutputTokens", fmt.Sprintf("must be a whole number from 1 to %d", maxWindow))
	}
	if set(r.Stop, &config.Stop, nil) {
		if err := checkStop(config.Stop); err != nil {
			return err
		}
	}
	if setPointer(r.Seed, &config.Seed) && (*config.Seed < -maxSeed || *config.Seed > maxSeed) {
		return api.Invalid("modelConfig.seed", "must be a whole number from -2^53 to 2^53")
	}
	if set(r.ReasoningEffort, &config.ReasoningEffort, "") && !slices.Contains(reasoningEfforts, config.ReasoningEffort) {
		return api.Invalid("modelConfig.reasoningEffort", "must be one of "+strings.Join(reasoningEfforts, ", "))
	}
	return nil
}

func checkStop(stop []string) error {
	if len(stop) < 1 || len(stop) > maxStops {
		return api.Invalid("modelConfig.stop", fmt.Sprintf("must have 1 to %d strings", maxStops))
	}
	for i, text := range stop {
		if n := utf8.RuneCountInString(text); n < 1 || n > maxStop {
			return api.Invalid(fmt.Sprintf("modelConfig.stop.%d", i), fmt.Sprintf("must have 1 to %d characters", maxStop))
		}
	}
	return nil
}

// listed returns the first names, separated by commas.
func listed(names []string) string {
	if len(names) > namesInError {
		return strings.Join(names[:namesInError], ", ") + " …"
	}
	return strings.Join(names, ", ")
}

// set sets field if the request has a value, and sets it to byDefault for null. It reports whether the request has a value.
func set[T any](requested api.Optional[T], field *T, byDefault T) bool {
	switch {
	case requested.Value != nil:
		*field = *requested.Value
	case requested.Null:
		*field = byDefault
	}
	return requested.Value != nil
}

// setPointer does the same for a field that is nil by default.
func setPointer[T any](requested api.Optional[T], field **T) bool {
	if requested.Given() {
		*field = requested.Value
	}
	return requested.Value != nil
}
