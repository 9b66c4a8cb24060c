package prompt_test

import (
	"fmt"
	"testing"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/window"
)

// The index has at most conversation.IndexLimit messages. A prompt that is planned from so many may not take many more allocations
// than one that is planned from ten.
func TestPlan_FullIndex_AllocationsAsForTenMessages(t *testing.T) {
	terms := window.TermsOf("the quick brown fox")
	for _, policy := range []conversation.RetentionPolicy{conversation.Priority, conversation.Semantic} {
		cost := func(messages int) float64 {
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
			return testing.AllocsPerRun(10, func() {
				f := prompt.New(c, conversation.Message{Content: "which fox?", Tokens: 3})
				f.Compare(nil)
				f.Plan()
			})
		}
		few, many := cost(10), cost(conversation.IndexLimit)
		t.Logf("%s: %v allocations with 10 messages, %v with %d", policy, few, many, conversation.IndexLimit)
		if many > few+10 {
			t.Errorf("%s: %v allocations with %d messages, %v with 10", policy, many, conversation.IndexLimit, few)
		}
	}
}
