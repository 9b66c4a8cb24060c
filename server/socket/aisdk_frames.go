package server

import (
	"encoding/json"
	"strings"

	"parley/conversation"
)

// sdkFrame is a frame of a client of ai-sdk.v7: its members by name. Those that Parley has no use for may be anything: the
// AI SDK sends headers, bodies and metadata of the page's own, and will send more.
type sdkFrame map[string]json.RawMessage

// parseSDKFrame returns the members of a frame.
func parseSDKFrame(frame []byte) (sdkFrame, error) {
	var f sdkFrame
	if err := json.Unmarshal(frame, &f); err != nil || f == nil {
		return nil, invalid("", "the frame must be a JSON object")
	}
	return f, nil
}

// text returns a member that has to be a string with something in it.
func (f sdkFrame) text(name string) (string, error) {
	raw, found := f[name]
	if !found {
		return "", invalid(name, missing)
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || text == "" {
		return "", invalid(name, "must be a string, and not empty")
	}
	return text, nil
}

// requestID returns the id of a frame's request, which every answer repeats.
func (f sdkFrame) requestID() (string, error) {
	id, err := f.text("requestId")
	if err == nil && len(id) > maxRequestID {
		return "", invalid("requestId", "must have at most 128 bytes")
	}
	return id, err
}

// message returns what a send frame has to say: of messages, the whole chat as the client shows it, the text of the last user
// message. For regenerate-message that is the one to answer again.
func (f sdkFrame) message(session string) (conversation.NewMessage, error) {
	none := conversation.NewMessage{}
	trigger, err := f.text("trigger")
	if err != nil {
		return none, err
	}
	if trigger != "submit-message" && trigger != "regenerate-message" {
		return none, invalid("trigger", "must be submit-message or regenerate-message")
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
	m, err := newMessage(session, content, nil, nil, metadata)
	if err != nil {
		return none, inMessages(err)
	}
	return m, nil
}

// lastUserMessage returns the members of the newest message with the role user.
func (f sdkFrame) lastUserMessage() (sdkFrame, error) {
	raw, found := f["messages"]
	if !found {
		return nil, invalid("messages", missing)
	}
	var messages []json.RawMessage
	if json.Unmarshal(raw, &messages) != nil {
		return nil, invalid("messages", "must be a list")
	}
	for i := len(messages) - 1; i >= 0; i-- {
		m, err := parseSDKFrame(messages[i])
		if err != nil {
			return nil, invalid("messages", "must be a list of objects")
		}
		if role, err := m.text("role"); err == nil && role == string(conversation.User) {
			return m, nil
		}
	}
	return nil, invalid("messages", "must have a message with the role user")
}

// textOf returns the text of a message's parts, a line break between two; nil where no part is text. A file is refused rather
// than left out: the reply would be as if it had not been sent. Parts of other types are the page's own.
func textOf(raw json.RawMessage) (*string, error) {
	var parts []sdkFrame
	if raw != nil && json.Unmarshal(raw, &parts) != nil {
		return nil, invalid("messages.parts", "must be a list of objects")
	}
	var texts []string
	for _, part := range parts {
		switch kind, _ := part.text("type"); kind {
		case "file":
			return nil, invalid("messages.parts", "must not have files: only text is understood")
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

// decodeMember decodes one member as strictly as over REST; nil is one that is not there.
func decodeMember(name string, raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return decode([]byte(`{"`+name+`":`+string(raw)+`}`), into)
}

// inMessages names the field of an error as the AI SDK's messages have it.
func inMessages(err error) error {
	if err == nil {
		return nil
	}
	e, _ := describe(err)
	name, rest, _ := strings.Cut(e.field, ".")
	switch name {
	case "content", "text":
		return invalid("messages.parts.text", e.reason)
	case "metadata":
		return invalid(strings.TrimSuffix("messages.metadata."+rest, "."), e.reason)
	}
	return err
}
