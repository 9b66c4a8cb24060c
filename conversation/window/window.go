// Package window decides what of a conversation goes to the model (design section 5). It is pure: no I/O, no clock.
//
// The whole window is MaxTokens. A part of it is kept for the reply ([Room]); what is sent must fit the rest
// ([Budget]).
package window

// MessageOverhead is what a message costs in a prompt beyond the tokens of its content, and PromptOverhead what a
// prompt costs beyond its messages: the chat format's own tokens.
const (
	MessageOverhead = 4
	PromptOverhead  = 3
)

// Room returns how many tokens are kept for the reply in a window of maxTokens.
func Room(maxTokens int) int { return min(maxTokens/4, 4096) }

// Budget returns how many tokens the messages of a prompt may take, their overhead included.
func Budget(maxTokens int) int { return maxTokens - Room(maxTokens) - PromptOverhead }

// Check decides whether a message of tokens, overhead included, can be taken in by a window whose history takes
// historyTokens. Where it
// cannot, current is what it would take, prompt and room, always above maxTokens.
func Check(maxTokens int, compression bool, historyTokens, tokens int) (current int, ok bool) {
	needed := tokens
	if !compression {
		needed += historyTokens // nothing may be left out
	}
	return historyTokens + tokens + PromptOverhead + Room(maxTokens), needed <= Budget(maxTokens)
}

// Estimate returns what a turn is expected to use at most: its prompt, as far as the window holds it, and the room for
// the reply. tokens is a new message's, overhead included.
func Estimate(maxTokens, historyTokens, tokens int) int {
	return min(historyTokens+tokens, Budget(maxTokens)) + PromptOverhead + Room(maxTokens)
}

// Message is what the window needs to know of a message.
type Message struct {
	Tokens int // with MessageOverhead
	// Skip says that the message is never sent: a reply that failed or has no text.
	Skip bool
	// Answers says that the message is the reply to the one before it; the two stay or go together.
	Answers bool
}

// FIFO returns the index of the first message of history that is kept: the newest messages that fit the budget beside
// a new message of tokens, a message and its answer together.
func FIFO(maxTokens int, history []Message, tokens int) (first int) {
	left := Budget(maxTokens) - tokens
	first = len(history)
	for i := len(history) - 1; i >= 0; i-- {
		if !history[i].Skip {
			left -= history[i].Tokens
		}
		if left < 0 {
			break
		}
		if !history[i].Answers {
			first = i
		}
	}
	return first
}
