package window

// MessageOverhead is what a message costs in a prompt besides the tokens of its content, and PromptOverhead what a
// prompt costs besides its messages: the chat format's own tokens.
const (
	MessageOverhead = 4
	PromptOverhead  = 3
)

// ReplyRoom returns how many tokens of a window are kept for the reply: a quarter, but not more than most models
// write.
func ReplyRoom(maxTokens int) int { return min(maxTokens/4, 4096) }

// Budget returns how many tokens the messages of a prompt may take, with their overhead.
func Budget(maxTokens int) int { return maxTokens - ReplyRoom(maxTokens) - PromptOverhead }

// Check reports whether a message of tokens, with overhead, can be accepted by a window whose history takes
// historyTokens. current is what prompt and reply room would take together; if ok is false it exceeds maxTokens.
func Check(maxTokens int, compression bool, historyTokens, tokens int) (current int, ok bool) {
	needed := tokens
	if !compression {
		needed += historyTokens // nothing may be left out
	}
	return historyTokens + tokens + PromptOverhead + ReplyRoom(maxTokens), needed <= Budget(maxTokens)
}

// Estimate returns what a turn may use at most: its prompt, as far as the budget allows, and the reply room. tokens
// is the new message's, with overhead. It is what a turn reserves from the limit of tokens a minute.
func Estimate(maxTokens, historyTokens, tokens int) int {
	return min(historyTokens+tokens, Budget(maxTokens)) + PromptOverhead + ReplyRoom(maxTokens)
}
