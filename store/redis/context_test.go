package redis

import (
	"fmt"
	"strings"
	"testing"

	"parley/conversation"
	"parley/conversation/window"
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

// TestContext_ManyMessages_FewMoreAllocations compares a session of 200 messages with a session of ten, with an index and with a
// history of all messages.
func TestContext_ManyMessages_FewMoreAllocations(t *testing.T) {
	s, owner := newStore(t), newOwner()
	for _, test := range []struct {
		policy conversation.RetentionPolicy
		window int
	}{{conversation.FIFO, 100_000}, {conversation.Priority, 128}, {conversation.Semantic, 128}} {
		cost := func(messages int) float64 {
			made, err := s.CreateSession(t.Context(), owner, conversation.NewSession{UserID: aUser, Context: conversation.ContextConfig{
				MaxTokens: test.window, CompressionEnabled: true, RetentionPolicy: test.policy,
			}})
			must(t, err)
			for range messages / 2 {
				key := begin(t, s, owner, aTurn(made.Session.ID, "what is this?")).Key
				reply := anAnswer
				reply.Terms = window.TermsOf("what is this?", reply.Content)
				_, err := s.EndTurn(t.Context(), key, reply, conversation.Timing{})
				must(t, err)
			}
			return testing.AllocsPerRun(5, func() {
				c, err := s.Context(t.Context(), owner, made.Session.ID, 1)
				must(t, err)
				if max(len(c.Index), len(c.History)) != messages {
					t.Fatalf("the index has %d messages and the history %d, want %d", len(c.Index), len(c.History), messages)
				}
			})
		}
		few, many := cost(10), cost(200)
		t.Logf("%s: %v allocations with 10 messages, %v with 200", test.policy, few, many)
		if many > few+20 {
			t.Errorf("%s: %v allocations with 200 messages, %v with 10; want at most 20 more", test.policy, many, few)
		}
	}
}

// sentBytes returns the number of bytes that a server has sent to its clients.
func sentBytes(server *redistest.Server) (n int) {
	_, figure, _ := strings.Cut(server.Do("INFO", "stats"), "total_net_output_bytes:")
	_, _ = fmt.Sscan(figure, &n)
	return n
}
