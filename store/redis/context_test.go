package redis

import (
	"fmt"
	"strings"
	"testing"

	"parley/conversation"
	"parley/store/redis/redistest"
)

// TestContext_LargeMetadata_NotSent counts the bytes that Redis sends for the context of 50 messages with 16 KiB of
// metadata each. Without the metadata, Redis sends about 10 kB.
func TestContext_LargeMetadata_NotSent(t *testing.T) {
	server := redistest.Single(t)
	s, owner := open(t, server.URL), newOwner()
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		made, err := s.CreateSession(t.Context(), owner, conversation.NewSession{
			UserID: aUser, Context: conversation.ContextConfig{MaxTokens: 1_000_000, CompressionEnabled: true, RetentionPolicy: policy},
		})
		must(t, err)
		turn := func() conversation.NewTurn {
			x := aTurn(made.Session.ID, "x")
			x.Metadata = []byte(`{"a":"` + strings.Repeat("b", 16<<10-8) + `"}`)
			return x
		}
		for range 50 {
			end(t, s, begin(t, s, owner, turn()).Key)
		}
		for _, read := range []struct {
			name string
			run  func()
		}{
			{"Context", func() {
				_, err := s.Context(t.Context(), owner, made.Session.ID, 1)
				must(t, err)
			}},
			{"BeginTurn", func() { begin(t, s, owner, turn()) }},
		} {
			before := sentBytes(server)
			read.run()
			if sent := sentBytes(server) - before; sent > 64<<10 {
				t.Errorf("%s with policy %s: Redis sends %d bytes, want at most 64 KiB", read.name, policy, sent)
			}
		}
	}
}

// sentBytes returns the number of bytes that a server has sent to its clients.
func sentBytes(server *redistest.Server) (n int) {
	_, figure, _ := strings.Cut(server.Do("INFO", "stats"), "total_net_output_bytes:")
	_, _ = fmt.Sscan(figure, &n)
	return n
}
