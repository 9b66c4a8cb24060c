package redis

import (
	"encoding/json"
	"strconv"

	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
)

// sessionOrGone reads the result of session_view or settings_view. It returns conversation.ErrSessionNotFound if the result is the word gone.
func sessionOrGone(id string, reply any) (conversation.Session, error) {
	if text(reply) == "gone" {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	return readSession(id, reply)
}

// readSession reads the result of session_view or settings_view: a session's fields in a fixed order (lua/lib/session.lua).
func readSession(id string, view any) (conversation.Session, error) {
	v := fields{list(view), 0, nil}
	s := conversation.Session{ID: id}
	s.UserID = v.text()
	s.CreatedAt, s.ExpiresAt, s.LastActivity = v.time(), v.time(), v.time()
	s.MessageCount = v.int()
	s.TokenUsage = conversation.TokenUsage{Prompt: v.int(), Completion: v.int(), Total: v.int()}
	if metadata := v.text(); metadata != "" {
		s.Metadata = json.RawMessage(metadata)
	}
	s.Context = conversation.ContextConfig{
		MaxTokens: v.int(), CompressionEnabled: v.text() != "", RetentionPolicy: conversation.RetentionPolicy(v.text()),
	}
	s.HistoryTokens = v.int()
	s.Head, s.Cleared, s.LiveReply, s.LiveMessage = v.text(), v.text(), v.text(), v.text()
	s.Fence = v.number()
	if v.at < len(v.all) {
		v.settings(&s)
	}
	return s, v.err
}

// settings reads the fields that settings_view adds to session_view.
func (f *fields) settings(s *conversation.Session) {
	if inPrompt := f.int(); inPrompt > 0 {
		s.InstructionTokens = inPrompt - window.MessageOverhead
	}
	s.Instructions = f.text()
	if model := f.text(); model != "" && record.ReadModel(model, &s.Model) != nil {
		f.err = errRecord
	}
	f.number() // the number of changes
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

// fields reads the texts and numbers of a list in order. A number may also be a text. If an element is missing or malformed,
// fields sets err.
type fields struct {
	all []any
	at  int
	err error
}

func (f *fields) text() string {
	if f.at >= len(f.all) {
		f.err = errRecord
		return ""
	}
	f.at++
	return text(f.all[f.at-1])
}

func (f *fields) number() int64 {
	if f.at < len(f.all) {
		if n, ok := f.all[f.at].(int64); ok {
			f.at++
			return n
		}
	}
	n, err := strconv.ParseInt(f.text(), 10, 64)
	if err != nil {
		f.err = errRecord
	}
	return n
}

func (f *fields) int() int { return int(f.number()) }

func (f *fields) time() conversation.Time { return conversation.Time(f.number()) }
