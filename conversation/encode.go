package conversation

import (
	"bytes"
	"encoding/json"
	"strconv"

	"parley/stream"
)

// This file encodes messages as JSON by hand, with the fields that encoding/json would write. Texts have the escapes of
// [stream.AppendString], which are fewer than those of encoding/json. Each turn encodes three messages, and encoding/json makes 8
// allocations for each.

// encodedBytes is the initial capacity for the JSON of a message without content and metadata: enough for most messages.
const encodedBytes = 768

// Created returns the JSON that viewers see when the message is created. For a reply, that is AsBegun.
func (m *Message) Created() []byte {
	if m.Role == Assistant {
		begun := m.AsBegun()
		m = &begun
	}
	b := make([]byte, 0, encodedBytes/3+len(m.Content)+len(m.Metadata))
	return m.appendAfter(stream.AppendString(m.appendBefore(b), m.Content))
}

// Document returns the message as a document, which shares the memory of Content.
func (m *Message) Document() *stream.Document {
	b := m.appendBefore(make([]byte, 0, encodedBytes+len(m.Metadata)))
	before := len(b)
	b = m.appendAfter(b)
	return &stream.Document{Before: b[:before:before], Content: m.Content, After: b[before:]}
}

// appendBefore appends the JSON of the message up to the value of its content.
func (m *Message) appendBefore(b []byte) []byte {
	b = appendText(b, `{"messageId":`, m.ID)
	b = appendText(b, `,"sessionId":`, m.SessionID)
	b = appendText(b, `,"role":`, m.Role)
	return append(b, `,"content":`...)
}

// appendAfter appends the JSON of the message after its content.
func (m *Message) appendAfter(b []byte) []byte {
	b = appendInt(b, `,"tokens":`, m.Tokens)
	b = m.CreatedAt.append(append(b, `,"createdAt":`...))
	if len(m.Metadata) > 0 {
		compact := bytes.NewBuffer(append(b, `,"metadata":`...))
		if err := json.Compact(compact, m.Metadata); err != nil {
			panic(err) // impossible: the metadata was checked on arrival
		}
		b = compact.Bytes()
	}
	b = appendText(b, `,"status":`, m.Status)
	if u := m.Usage; u != nil {
		b = appendInt(b, `,"usage":{"prompt":`, u.Prompt)
		b = appendInt(b, `,"completion":`, u.Completion)
		if u.Reasoning > 0 {
			b = appendInt(b, `,"reasoning":`, u.Reasoning)
		}
		b = appendInt(b, `,"total":`, u.Total)
		b = append(appendBool(b, `,"estimated":`, u.Estimated), '}')
	}
	b = appendOptional(b, `,"finishReason":`, m.FinishReason)
	if m.Context != nil {
		b = m.Context.append(append(b, `,"context":`...))
	}
	if m.Error != nil {
		b = append(append(b, `,"error":`...), encode(m.Error)...)
	}
	return append(b, '}')
}

func (r *ContextReport) append(b []byte) []byte {
	b = appendText(b, `{"policy":`, r.Policy)
	b = appendInt(b, `,"promptTokens":`, r.PromptTokens)
	b = appendInt(b, `,"maxTokens":`, r.MaxTokens)
	if r.ModelTokens > 0 {
		b = appendInt(b, `,"modelTokens":`, r.ModelTokens)
	}
	b = r.Kept.append(append(b, `,"kept":`...))
	b = r.InSummary.append(append(b, `,"folded":`...))
	b = r.Dropped.append(append(b, `,"dropped":`...))
	b = r.Skipped.append(append(b, `,"skipped":`...))
	b = appendBool(b, `,"summarised":`, r.Summarised)
	b = appendOptional(b, `,"similarity":`, r.Similarity)
	return append(appendOptional(b, `,"folding":`, r.SummaryFault), '}')
}

func (r *MessageRange) append(b []byte) []byte {
	b = appendInt(b, `{"count":`, r.Count)
	b = appendOptional(b, `,"first":`, r.First)
	return append(appendOptional(b, `,"last":`, r.Last), '}')
}

// append appends the encoding of MarshalJSON.
func (t Time) append(b []byte) []byte { return t.Go().AppendFormat(b, `"`+timeLayout+`"`) }

// The functions below append the name of a field, with its punctuation, and its value.

func appendText[S ~string](b []byte, name string, value S) []byte {
	return stream.AppendString(append(b, name...), string(value))
}

// appendOptional appends nothing if the value is empty.
func appendOptional[S ~string](b []byte, name string, value S) []byte {
	if value == "" {
		return b
	}
	return appendText(b, name, value)
}

func appendInt(b []byte, name string, value int) []byte {
	return strconv.AppendInt(append(b, name...), int64(value), 10)
}

func appendBool(b []byte, name string, value bool) []byte {
	return strconv.AppendBool(append(b, name...), value)
}

// encode returns v as JSON, without HTML escapes. It panics on an error. An error cannot happen: v is a plain struct.
func encode(v any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}
