// Package window decides what of a conversation goes to the model (design section 5). It is pure: no I/O, no clock, no
// goroutines, and it keeps nothing between calls, so everything in it may be called from any goroutine.
//
// The whole window is MaxTokens. A part of it is kept for the reply ([ReplyRoom]); what is sent must fit the rest
// ([Budget]). [Check] decides by arithmetic whether a message can be taken in at all (413 otherwise).
//
// A turn uses it like this:
//
//	in := window.Input{MaxTokens: …, Compression: …, Policy: …, Summary: …, History: …, New: …}
//	if in.Policy == window.Semantic {
//		// exchanges[e] is question.And(answer), of the Terms kept with the messages
//		scores := window.LexicalScores(window.TermsOf(content), exchanges)
//		// and vectors[e] the exchange's Vector; where there are no embeddings, or they are late, the words are all
//		scores = window.FuseScores(scores, vector, vectors)
//		// scores[e] becomes the Similarity of either message of the exchange
//	}
//	p := window.Plan(in)
//	if len(p.SummariseFirst) > 0 {
//		// Fold these pieces in front of the turn, one call to the model each, each committed with the id of its last
//		// message; then plan anew with the new summary. If that fails or takes too long, go on with p: it is a plan
//		// that holds, and says which messages the model has no trace of (Dropped).
//	}
//	// The prompt is History[i] for each i of p.Send, with the summary in front of p.Send[p.SummaryAt] if p.SendSummary,
//	// and New at its end.
//
// and behind the reply, with the new message and the reply in the history and no New:
//
//	for _, piece := range window.PlanSummary(in) { … }
//
// A [Decision] stands in the plan for every message of the history; the counts of [Result] are those of the reply's
// context report.
//
// The summary covers the messages from the first of the session to one that it names ([Summary]), whatever the policy. It
// is sent as a system message, behind the system messages that the session begins with, and counts like any other.
package window

// MessageOverhead is what a message costs in a prompt beyond the tokens of its content, and PromptOverhead what a
// prompt costs beyond its messages: the chat format's own tokens.
const (
	MessageOverhead = 4
	PromptOverhead  = 3
)

// ReplyRoom returns how many tokens are kept for the reply in a window of maxTokens.
func ReplyRoom(maxTokens int) int { return min(maxTokens/4, 4096) }

// Budget returns how many tokens the messages of a prompt may take, their overhead included.
func Budget(maxTokens int) int { return maxTokens - ReplyRoom(maxTokens) - PromptOverhead }

// Check decides whether a message of tokens, overhead included, can be taken in by a window whose history takes
// historyTokens. Where it cannot, current is what it would take, prompt and room, always above maxTokens.
func Check(maxTokens int, compression bool, historyTokens, tokens int) (current int, ok bool) {
	needed := tokens
	if !compression {
		needed += historyTokens // nothing may be left out
	}
	return historyTokens + tokens + PromptOverhead + ReplyRoom(maxTokens), needed <= Budget(maxTokens)
}

// Estimate returns what a turn is expected to use at most: its prompt, as far as the window holds it, and the room for
// the reply. tokens is a new message's, overhead included.
func Estimate(maxTokens, historyTokens, tokens int) int {
	return min(historyTokens+tokens, Budget(maxTokens)) + PromptOverhead + ReplyRoom(maxTokens)
}
