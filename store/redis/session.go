package redis

import (
	"encoding/binary"
	"encoding/json"
	"math"

	"parley/conversation"
)

// sessionOrGone reads the result of session_view. It returns conversation.ErrSessionNotFound if the result is the word gone.
func sessionOrGone(id string, reply any) (conversation.Session, error) {
	if text(reply) == "gone" {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	return readSession(id, reply)
}

// readSession reads the result of session_view (lua/lib/session.lua).
func readSession(id string, view any) (conversation.Session, error) {
	v := viewReader{rest: text(view)}
	s := conversation.Session{ID: id, CreatedAt: v.time(), ExpiresAt: v.time(), LastActivity: v.time(), MessageCount: v.int()}
	s.TokenUsage = conversation.TokenUsage{Prompt: v.int(), Completion: v.int(), Total: v.int()}
	s.Context.MaxTokens, s.HistoryTokens, s.Fence = v.int(), v.int(), v.number()
	s.Context.CompressionEnabled = v.number() == 1
	s.UserID = v.text()
	if metadata := v.text(); metadata != "" {
		s.Metadata = json.RawMessage(metadata)
	}
	s.Context.RetentionPolicy = conversation.RetentionPolicy(v.text())
	s.Head, s.Cleared, s.LiveReply, s.LiveMessage = v.text(), v.text(), v.text(), v.text()
	if v.malformed || v.rest != "" {
		return conversation.Session{}, errRecord
	}
	return s, nil
}

// viewReader reads numbers and texts that a script has packed with struct.pack: a number as a double, a text after its length in 32
// bits. After the end of rest, it returns zero values and sets malformed.
type viewReader struct {
	rest      string
	malformed bool
}

func (r *viewReader) take(n int) string {
	if n > len(r.rest) {
		*r = viewReader{malformed: true}
		return ""
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *viewReader) text() string {
	length := r.take(4)
	if length == "" {
		return ""
	}
	return r.take(int(binary.LittleEndian.Uint32([]byte(length))))
}

func (r *viewReader) number() int64 {
	double := r.take(8)
	if double == "" {
		return 0
	}
	return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(double))))
}

func (r *viewReader) int() int { return int(r.number()) }

func (r *viewReader) time() conversation.Time { return conversation.Time(r.number()) }
