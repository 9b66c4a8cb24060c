package redis

import (
	"encoding/json"

	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
)

// sessionOrGone reads the result of session_view or settings_view. It returns conversation.ErrSessionNotFound if the result is the
// word gone.
func sessionOrGone(id string, reply any) (conversation.Session, error) {
	if text(reply) == "gone" {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	return readSession(id, reply)
}

// readSession reads the result of session_view or settings_view (lua/lib/session.lua).
func readSession(id string, view any) (conversation.Session, error) {
	s, _, err := readSettings(id, view)
	return s, err
}

// readSettings does the same as readSession. It also returns the number of changes of the settings, which only settings_view has.
func readSettings(id string, view any) (s conversation.Session, changes int64, err error) {
	v := structReader{rest: text(view)}
	s = conversation.Session{ID: id, CreatedAt: v.time(), ExpiresAt: v.time(), LastActivity: v.time(), MessageCount: v.int()}
	s.TokenUsage = conversation.TokenUsage{Prompt: v.int(), Completion: v.int(), Total: v.int()}
	s.Context.MaxTokens, s.HistoryTokens, s.Fence = v.int(), v.int(), v.number()
	s.Context.CompressionEnabled = v.number() == 1
	s.UserID = v.text()
	if metadata := v.text(); metadata != "" {
		s.Metadata = json.RawMessage(metadata)
	}
	s.Context.RetentionPolicy = conversation.RetentionPolicy(v.text())
	s.Head, s.Cleared, s.LiveReply, s.LiveMessage = v.text(), v.text(), v.text(), v.text()
	if v.rest != "" {
		changes = v.settings(&s)
	}
	if v.malformed || v.rest != "" {
		return conversation.Session{}, 0, errRecord
	}
	return s, changes, nil
}

// settings reads the fields that settings_view adds to session_view, and returns the number of changes.
func (r *structReader) settings(s *conversation.Session) (changes int64) {
	if inPrompt := r.int(); inPrompt > 0 {
		s.InstructionTokens = inPrompt - window.MessageOverhead
	}
	changes = r.number()
	s.Instructions = r.text()
	if model := r.text(); model != "" && record.ReadModel(model, &s.Model) != nil {
		r.malformed = true
	}
	return changes
}

// settingsArgs returns the arguments for settings_save: the size of the instructions in a prompt, the instructions, the record of
// the model's configuration, and the limit of a reply.
func settingsArgs(s *conversation.Session) []any {
	var model []byte
	if !s.Model.IsZero() {
		model = record.AppendModel(nil, &s.Model)
	}
	return []any{s.Window().Instructions, s.Instructions, model, s.Model.MaxOutputTokens}
}
