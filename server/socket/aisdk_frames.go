package socket

import (
	"encoding/json"
	"errors"
	"strings"

	"parley/conversation"
	"parley/server/api"
)

// sdkFrame holds the members of a frame from a client of ai-sdk.v7, by name. Unlike in parley.v1, unknown members are ignored.
// The AI SDK also sends headers, a body and metadata of the page, and later versions may send more.
type sdkFrame map[string]json.RawMessage

// parseSDKFrame returns the members of a frame.
func parseSDKFrame(frame []byte) (sdkFrame, error) {
	var f sdkFrame
	if err := json.Unmarshal(frame, &f); err != nil || f == nil {
		return nil, api.Invalid("", "the frame must be a JSON object")
	}
	return f, nil
}

// text returns the value of a member that must be a non-empty string.
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

// requestID returns the id of a frame's request. Every response repeats the id.
func (f sdkFrame) requestID() (string, error) {
	id, err := f.text("requestId")
	if err == nil && len(id) > maxRequestID {
		return "", api.Invalid("requestId", "must have at most 128 bytes")
	}
	return id, err
}

// message returns the message to send: the last user message in the member messages. That member holds the whole chat as the
// client shows it; the server has the other messages already. With the trigger regenerate-message, the same message is sent
// again and gets another reply.
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

// textOf returns the text parts of a message, joined by line breaks. It returns nil if the message has no text parts. A file
// is an error, because the model would reply without the file. textOf ignores parts of other types, which are only for the
// page.
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

// metadataOf returns a message's metadata. It returns nil if the metadata is missing or null.
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

// decodeMember decodes one member as strictly as REST does. If raw is nil, the member is missing, and into stays unchanged.
func decodeMember(name string, raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return api.Decode([]byte(`{"`+name+`":`+string(raw)+`}`), into)
}

// inMessages renames the field of a validation error to its path in the AI SDK's frame. It returns any other error unchanged.
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

func (d *aiSDK) refuse(c *connection, frame []byte, err error) {
	id := ""
	if f, malformed := parseSDKFrame(frame); malformed == nil {
		id, _ = f.requestID()
	}
	d.sendError(c, id, err)
}
