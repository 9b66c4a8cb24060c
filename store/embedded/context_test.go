package embedded

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"parley/conversation"
)

// TestContext_LargeMetadata_NotCopied counts the bytes that a context of 50 messages with 16 KiB of metadata each allocates. It
// does not run in parallel, because other tests allocate too.
func TestContext_LargeMetadata_NotCopied(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "parley.db"))
	config := conversation.ContextConfig{MaxTokens: 1_000_000, CompressionEnabled: true, RetentionPolicy: conversation.FIFO}
	made, err := s.CreateSession(t.Context(), somebody, conversation.NewSession{UserID: "user_0123456789abcdef", Context: config})
	must(t, err)
	for range 50 {
		turn := newTurn(made.Session.ID, "x")
		turn.Metadata = json.RawMessage(`{"a":"` + strings.Repeat("b", 16<<10-8) + `"}`)
		begun, err := s.BeginTurn(t.Context(), somebody, turn)
		must(t, err)
		_, err = s.EndTurn(t.Context(), begun.Key, completed("y"), conversation.Timing{})
		must(t, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := s.Context(t.Context(), somebody, made.Session.ID, 1)
	runtime.ReadMemStats(&after)
	must(t, err)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10 || len(c.History) != 100 {
		t.Errorf("the context of %d messages allocates %d bytes, want at most 256 KiB", len(c.History), n)
	}
}

// TestContext_FullIndex_FewMoreAllocations compares a session with a full index with a session of ten messages. The window is
// small, so both histories have about the same number of messages.
func TestContext_FullIndex_FewMoreAllocations(t *testing.T) {
	s := open(t, newPath(t))
	for _, policy := range []conversation.RetentionPolicy{conversation.Priority, conversation.Semantic} {
		cost := func(messages int) float64 {
			made, err := s.CreateSession(t.Context(), somebody, conversation.NewSession{
				UserID:  "user_0123456789abcdef",
				Context: conversation.ContextConfig{MaxTokens: 128, CompressionEnabled: true, RetentionPolicy: policy},
			})
			must(t, err)
			grow(t, s, made.Session, messages)
			return testing.AllocsPerRun(5, func() {
				c, err := s.Context(t.Context(), somebody, made.Session.ID, 1)
				must(t, err)
				if len(c.Index) != messages {
					t.Fatalf("the index has %d messages, want %d", len(c.Index), messages)
				}
			})
		}
		few, many := cost(10), cost(conversation.IndexLimit)
		t.Logf("%s: %v allocations with 10 messages, %v with %d", policy, few, many, conversation.IndexLimit)
		if many > few+20 {
			t.Errorf("%s: %v allocations with %d messages, %v with 10; want at most 20 more", policy, many, conversation.IndexLimit, few)
		}
	}
}
