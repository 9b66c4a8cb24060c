package conversation

import (
	"fmt"

	"parley/conversation/window"
)

// ModelConfig chooses the model of a session's replies and its parameters. A zero field is not sent, so the provider's default
// applies.
type ModelConfig struct {
	// Model is the configured name of the model; "" for the default model.
	Model       string   `json:"model,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"topP,omitempty"`
	// MaxOutputTokens is the limit of a reply in the provider's tokens, including those for reasoning. 0 means the reply room.
	MaxOutputTokens int      `json:"maxOutputTokens,omitempty"`
	Stop            []string `json:"stop,omitempty"`
	Seed            *int64   `json:"seed,omitempty"`
	ReasoningEffort string   `json:"reasoningEffort,omitempty"`
}

// IsZero reports whether the configuration has no field.
func (c ModelConfig) IsZero() bool {
	return c.Model == "" && c.Temperature == nil && c.TopP == nil && c.MaxOutputTokens == 0 && len(c.Stop) == 0 && c.Seed == nil &&
		c.ReasoningEffort == ""
}

// Window returns the size of the session's window.
func (s *Session) Window() window.Size {
	size := window.Size{MaxTokens: s.Context.MaxTokens, Reply: s.Model.MaxOutputTokens}
	if s.Instructions != "" {
		size.Instructions = s.InstructionTokens + window.MessageOverhead
	}
	return size
}

// StoredBytes returns the number of bytes that the session counts in the quota storedBytes, without its messages.
func (s *Session) StoredBytes() int { return len(s.Metadata) + len(s.Instructions) }

// Short returns the session without Instructions, InstructionTokens and Model.
func (s Session) Short() Session {
	s.Instructions, s.InstructionTokens, s.Model = "", 0, ModelConfig{}
	return s
}

// SettingsError means that the settings of a session are invalid. Reason continues a sentence that begins with Field.
type SettingsError struct{ Field, Reason string }

func (e *SettingsError) Error() string { return e.Field + " " + e.Reason }

// CheckWindow returns a *SettingsError if the session's window has less room for messages than window.MinBudget.
func (s *Session) CheckWindow() error {
	size := s.Window()
	size.Reply = 0 // the limit of a reply may be removed later
	missing := window.MinBudget - size.Budget()
	if missing <= 0 {
		return nil
	}
	return &SettingsError{"instructions", fmt.Sprintf("take %d tokens, which leaves no room for a reply and a message: at most %d fit "+
		"into contextConfig.maxTokens, which is %d", s.InstructionTokens, max(s.InstructionTokens-missing, 0), size.MaxTokens)}
}

// CheckPolicyChange returns a *SettingsError if the session has messages, and its index lacks what the policy next needs: fifo
// indexes only system messages, and priority stores no terms. A store calls it in the operation that changes the policy.
func (s *Session) CheckPolicyChange(next RetentionPolicy) error {
	from := s.Context.RetentionPolicy
	if s.MessageCount == 0 || next == from || next == FIFO || next == Priority && from == Semantic {
		return nil
	}
	return &SettingsError{"contextConfig.retentionPolicy", fmt.Sprintf("cannot change from %s to %s while the session has messages: "+
		"clear the history first, or create a session with this policy", from, next)}
}
