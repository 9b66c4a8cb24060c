package window

// MessageOverhead is the number of tokens that the chat format adds to each message of a prompt. PromptOverhead is the
// number of tokens that it adds once to the whole prompt.
const (
	MessageOverhead = 4
	PromptOverhead  = 3
)

// MaxReplyRoom is the maximum of [ReplyRoom], in tokens. Most models write no longer replies.
const MaxReplyRoom = 4096

// ReplyRoom returns the number of tokens of a window that are kept for the reply: a quarter of the window, at most
// MaxReplyRoom.
func ReplyRoom(maxTokens int) int { return min(maxTokens/4, MaxReplyRoom) }

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

// Budget returns the maximum number of tokens of a prompt's messages, with their overhead.
func Budget(maxTokens int) int { return maxTokens - ReplyRoom(maxTokens) - PromptOverhead }

// Check reports whether a window can hold a new message: with its history if compression is false, otherwise without.
// tokens is the size of the new message and historyTokens the size of the history, with overhead. current is the size
// of the prompt with the whole history, plus the reply room. If ok is false, current exceeds maxTokens.
func Check(maxTokens int, compression bool, historyTokens, tokens int) (current int, ok bool) {
	needed := tokens
	if !compression {
		needed += historyTokens // nothing may be left out
	}
	return historyTokens + tokens + PromptOverhead + ReplyRoom(maxTokens), needed <= Budget(maxTokens)
}

// Estimate returns the maximum number of tokens that a turn may use: the size of the prompt, limited by the budget,
// plus the reply room. tokens is the size of the new message, with overhead. A turn reserves this number from the rate
// limit of tokens per minute.
func Estimate(maxTokens, historyTokens, tokens int) int {
	return min(historyTokens+tokens, Budget(maxTokens)) + PromptOverhead + ReplyRoom(maxTokens)
}
