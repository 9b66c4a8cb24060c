package prompt_test

import (
	"fmt"
	"runtime"
	"testing"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/window"
)

// The index has at most conversation.IndexLimit messages. A prompt that is planned from so many may not take many more
// allocations than one that is planned from ten, and at most 320 bytes for each message. Copying the messages again, for
// example because Add has no room, takes 130 bytes more.
func TestPlan_FullIndex_FewAllocationsAndBytes(t *testing.T) {
	const bytesEach = 320
	terms := window.TermsOf("the quick brown fox")
	message, reply := conversation.Message{ID: "msg_x", Role: conversation.User}, conversation.Message{ID: "msg_y", Role: conversation.Assistant}
	for _, policy := range []conversation.RetentionPolicy{conversation.Priority, conversation.Semantic} {
		cost := func(messages int) (allocations, bytes float64) {
			c := conversation.Context{Session: conversation.Session{
				Context:      conversation.ContextConfig{MaxTokens: 512, CompressionEnabled: true, RetentionPolicy: policy},
				MessageCount: messages, HistoryTokens: 100 * messages,
			}}
			for i := range messages {
				x := conversation.Indexed{ID: fmt.Sprintf("msg_%016d", i), Role: conversation.User, Tokens: 96}
				if i%2 == 1 {
					x.Role, x.Terms = conversation.Assistant, terms
				}
				c.Index = append(c.Index, x)
			}
			plan := func() {
				f := prompt.New(c, conversation.Message{Content: "which fox?", Tokens: 3})
				f.Compare(nil)
				f.Plan()
				f.Add(&message, &reply)
			}
			const runs = 10
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			allocations = testing.AllocsPerRun(runs, plan)
			runtime.ReadMemStats(&after)
			return allocations, float64(after.TotalAlloc-before.TotalAlloc) / (runs + 1)
		}
		few, _ := cost(10)
		many, bytes := cost(conversation.IndexLimit)
		t.Logf("%s: %v allocations with 10 messages, %v with %d, which take %.0f bytes each", policy, few, many, conversation.IndexLimit,
			bytes/conversation.IndexLimit)
		if many > few+10 {
			t.Errorf("%s: %v allocations with %d messages, %v with 10", policy, many, conversation.IndexLimit, few)
		}
		if bytes > bytesEach*conversation.IndexLimit {
			t.Errorf("%s: planning takes %.0f bytes for each of %d messages, want at most %d", policy, bytes/conversation.IndexLimit,
				conversation.IndexLimit, bytesEach)
		}
	}
}
