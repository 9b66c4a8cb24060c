package socket

import (
	"encoding/json"
	"errors"
	"strings"

	"parley/conversation"
	"parley/server/api"
)

// sdkFrame is a frame of a client of ai-sdk.v7: its members by name. Unlike in parley.v1, unknown members are ignored: the
// AI SDK also sends headers, a body and metadata that belong to the page, and later versions may send more.
type sdkFrame map[string]json.RawMessage

// parseSDKFrame returns the members of a frame.
func parseSDKFrame(frame []byte) (sdkFrame, error) {
	var f sdkFrame
	if err := json.Unmarshal(frame, &f); err != nil || f == nil {
		return nil, api.Invalid("", "the frame must be a JSON object")
	}
	return f, nil
}

// text returns a member that must be a non-empty string.
func (f sdkFrame) text(name string) (string, error) {
	raw, found := f[name]
	if !found {
		return "", api.Invalid(name, api.Required)
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || text == "" {
		return "", api.Invalid(name, "must be a non-empty string")
	}
	return text, nil
}

// requestID returns the id of a frame's request, which every response repeats.
func (f sdkFrame) requestID() (string, error) {
	id, err := f.text("requestId")
	if err == nil && len(id) > maxRequestID {
		return "", api.Invalid("requestId", "must have at most 128 bytes")
	}
	return id, err
}

// message returns the message to send: the last user message in messages, which is the whole chat as the client shows it.
// The server has the rest. With the trigger regenerate-message it is the message that gets another reply.
func (f sdkFrame) message(session string) (conversation.NewMessage, error) {
	none := conversation.NewMessage{}
	trigger, err := f.text("trigger")
	if err != nil {
		return none, err
	}
	if trigger != "submit-message" && trigger != "regenerate-message" {
		return none, api.Invalid("trigger", "must be submit-message or regenerate-message")
	}
	last, err := f.lastUserMessage()
	if err != nil {
		return none, err
	}
	content, err := textOf(last["parts"])
	if err != nil {
		return none, err
	}
	metadata, err := metadataOf(last["metadata"])
	if err != nil {
		return none, err
	}
	m, err := api.CheckMessage(session, api.MessageRequest{Content: content, Metadata: metadata})
	if err != nil {
		return none, inMessages(err)
	}
	return m, nil
}

// lastUserMessage returns the last message with the role user.
func (f sdkFrame) lastUserMessage() (sdkFrame, error) {
	raw, found := f["messages"]
	if !found {
		return nil, api.Invalid("messages", api.Required)
	}
	var messages []json.RawMessage
	if json.Unmarshal(raw, &messages) != nil {
		return nil, api.Invalid("messages", "must be a list")
	}
	for i := len(messages) - 1; i >= 0; i-- {
		m, err := parseSDKFrame(messages[i])
		if err != nil {
			return nil, api.Invalid("messages", "must be a list of objects")
		}
		if role, err := m.text("role"); err == nil && role == string(conversation.User) {
			return m, nil
		}
	}
	return nil, api.Invalid("messages", "must have a message with the role user")
}

// textOf returns the text parts of a message, joined by line breaks; nil if there are none. A file is an error: if it were
// dropped, the model would reply as if it had never been sent. Other types of parts belong to the page and are ignored.
func textOf(raw json.RawMessage) (*string, error) {
	var parts []sdkFrame
	if raw != nil && json.Unmarshal(raw, &parts) != nil {
		return nil, api.Invalid("messages.parts", "must be a list of objects")
	}
	var texts []string
	for _, part := range parts {
		switch kind, _ := part.text("type"); kind {
		case "file":
			return nil, api.Invalid("messages.parts", "must not have files: only text is supported")
		case "text":
			var known struct {
				Text *string `json:"text"`
			}
			if err := decodeMember("text", part["text"], &known); err != nil {
				return nil, inMessages(err)
			}
			if known.Text != nil {
				texts = append(texts, *known.Text)
			}
		}
	}
	if texts == nil {
		return nil, nil
	}
	text := strings.Join(texts, "\n")
	return &text, nil
}

// metadataOf returns a message's metadata; none for null.
func metadataOf(raw json.RawMessage) (json.RawMessage, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	var known struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	err := decodeMember("metadata", raw, &known)
	return known.Metadata, inMessages(err)
}

// decodeMember decodes one member as strictly as over REST; nil is a missing one.
func decodeMember(name string, raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return api.Decode([]byte(`{"`+name+`":`+string(raw)+`}`), into)
}

// inMessages returns a validation error with its field named as in the AI SDK's messages.
func inMessages(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	name, rest, _ := strings.Cut(e.Field, ".")
	switch name {
	case "content", "text":
		return api.Invalid("messages.parts.text", e.Reason)
	case "metadata":
		return api.Invalid(strings.TrimSuffix("messages.metadata."+rest, "."), e.Reason)
	}
	return err
}
