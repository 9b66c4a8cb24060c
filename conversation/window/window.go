package window

// MessageOverhead is the number of tokens that the chat format adds to each message of a prompt. PromptOverhead is the
// number of tokens that it adds once to the whole prompt.
const (
	MessageOverhead = 4
	PromptOverhead  = 3
)

// MaxReplyRoom is the maximum of the reply room, in tokens. Most models write no longer replies.
const MaxReplyRoom = 4096

// MinBudget is the smallest budget that a session may be configured with, in tokens: a question of ten words fits.
const MinBudget = 16

// Size is the size of a window, in tokens.
type Size struct {
	// MaxTokens is the whole window.
	MaxTokens int
	// Reply is the configured limit of a reply; 0 for none.
	Reply int
	// Instructions is the size of the session's instructions, with MessageOverhead; 0 for none. They are in every prompt.
	Instructions int
}

// ReplyRoom returns the number of tokens that are kept for the reply: a quarter of the window, at most MaxReplyRoom, and no more
// than the configured limit. A larger limit does not take room from the messages: with it, a model may spend tokens on reasoning,
// which is not stored.
func (z Size) ReplyRoom() int {
	room := min(z.MaxTokens/4, MaxReplyRoom)
	if z.Reply > 0 {
		room = min(room, z.Reply)
	}
	return room
}

// overhead returns the number of tokens of a prompt that are not tokens of its messages.
func (z Size) overhead() int { return PromptOverhead + z.Instructions }

const (
	// tokenBytes is the number of bytes that a text may have for each token of its limit. The longest tokens of
	// OpenAI's vocabularies, runs of spaces, have 128 bytes. In any language, a token has 2 to 8 bytes on average. So
	// with any vocabulary, only a model that ignores its limit of tokens exceeds this limit.
	tokenBytes = 256
	// DefaultReplyBytes is the default maximum of [ReplyBytes]: the text of a reply with the largest reply room.
	DefaultReplyBytes = MaxReplyRoom * tokenBytes
)

// ReplyBytes returns the maximum size in bytes of a text that a model writes with a limit of tokens: 256 bytes for each
// token, at most maxBytes. If maxBytes exceeds DefaultReplyBytes, a token may have more bytes in proportion, so that
// the largest reply room still gives maxBytes. A maxBytes of 0 means DefaultReplyBytes.
func ReplyBytes(tokens, maxBytes int) int {
	if maxBytes == 0 {
		maxBytes = DefaultReplyBytes
	}
	return min(maxBytes, tokens*max(tokenBytes, maxBytes/MaxReplyRoom))
}

// Budget returns the maximum number of tokens of a prompt's messages, with their overhead and without the instructions.
func (z Size) Budget() int { return z.MaxTokens - z.ReplyRoom() - z.overhead() }

// Check reports whether a window can hold a new message: with its history if compression is false, otherwise without.
// tokens is the size of the new message and historyTokens the size of the history, with overhead. current is the size
// of the prompt with the whole history, plus the reply room. If ok is false, current exceeds MaxTokens.
func (z Size) Check(compression bool, historyTokens, tokens int) (current int, ok bool) {
	needed := tokens
	if !compression {
		needed += historyTokens // nothing may be left out
	}
	return historyTokens + tokens + z.overhead() + z.ReplyRoom(), needed <= z.Budget()
}

// Prompt returns the maximum number of tokens of a prompt. tokens is the size of all messages, with overhead. So many
// prompt tokens are charged if the process dies before the model reports its figures.
func (z Size) Prompt(tokens int) int { return min(tokens, z.Budget()) + z.overhead() }

// Estimate returns the number of tokens that a turn may use: those of the prompt, and the limit of the reply. tokens is the size of
// all messages, with overhead. A turn reserves this number from the rate limit of tokens per minute. If no limit is configured, a
// model that reasons may use more (prompt.ReasoningRoom).
func (z Size) Estimate(tokens int) int { return z.Prompt(tokens) + max(z.Reply, z.ReplyRoom()) }
