package redis

import (
	"encoding/json"
	"errors"
	"strconv"

	"parley/conversation"
)

func (s *Store) poke(string) {}

func messageRecord(m *conversation.Message) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return append([]byte{1}, b...)
}

func readSession(id string, reply any) (conversation.Session, error) {
	f, ok := texts(reply)
	if !ok || len(f) != 18 {
		return conversation.Session{}, errors.New("malformed")
	}
	n := func(i int) int { n, _ := strconv.Atoi(f[i]); return n }
	return conversation.Session{ID: id, UserID: f[0], Head: f[13], Cleared: f[14], Live: f[15], Asked: f[16], Fence: int64(n(17)), MessageCount: n(4), HistoryTokens: n(12),
		TokenUsage: conversation.TokenUsage{Prompt: n(5), Completion: n(6), Total: n(7)}}, nil
}
