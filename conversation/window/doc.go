// Package window chooses the messages of a conversation that go into the prompt. It is pure: no I/O, no clock, no
// goroutines and no state between calls. So everything in it may be called from any goroutine.
//
// # The window
//
//	maxTokens  = reply room + prompt overhead + budget
//	reply room = a quarter of maxTokens, at most 4,096 ([ReplyRoom]); the provider gets it as the reply's limit
//	budget     = tokens for the messages of the prompt, including 4 each for the chat format ([Budget])
//
// [Check] decides from stored counts whether the window can hold a new message. Without summaries (compressionEnabled is
// false) the whole history must fit beside it: nothing is silently forgotten. With summaries only the message itself must
// fit. Otherwise the send is refused with 413, and the session does not change. Once Check has passed, [Plan] cannot
// fail.
//
// # What is kept
//
// If everything fits, everything is sent word for word, except replies that failed or have no text. If not, the policy decides
// which exchanges (a message and its reply, kept or left out together) stay word for word:
//
//   - fifo: the newest.
//   - priority: system messages, then those of the highest priority in their metadata, then the newest.
//   - semantic: the newest exchange, then those closest in meaning to the new message: by embeddings fused with words
//     ([FuseScores]), or by words alone (BM25, [LexicalScores]) where embeddings are missing or late.
//
// The chosen messages are sent in their original order. [Result] has a [Decision] for each message. Its counts become the
// context report of the reply.
//
// # The summary
//
// With every policy, a summary covers the messages of the session from the first to [Summary.Last]. It is sent as a
// system message, after the system messages at the beginning of the session. It takes at most a quarter of the budget and
// 1,024 tokens ([SummaryLimit]). Messages that are neither sent nor in the summary are dropped.
//
// Summarising costs a call to the model, so it is done after a reply that left the window over 80 % full ([PlanSummary]):
// the next turn finds it done, and its first token is not late. fifo then summarises until the rest, with the summary,
// takes half of the budget, so that not every reply needs another call. The other policies summarise everything once the
// messages in no summary take more than an eighth of the budget. A turn must summarise first ([Result.SummariseFirst])
// only if its plan would drop messages that are in no summary: any under fifo, more than that eighth under the others. If
// the model fails to summarise, the turn goes on with the plan, and the report counts the dropped messages.
//
// # How a turn uses it
//
//	in := window.Input{MaxTokens: …, Compression: …, Policy: …, Summary: …, History: …, New: …}
//	if in.Policy == window.Semantic {
//		// exchanges[e] is question.Merge(reply), of the Terms stored with the messages, and vectors[e] its Vector
//		scores := window.LexicalScores(window.TermsOf(content), exchanges)
//		scores = window.FuseScores(scores, vector, vectors)
//		// scores[e] becomes the Similarity of both messages of the exchange
//	}
//	p := window.Plan(in)
//	// If len(p.SummariseFirst) > 0: summarise each batch by one call, store the summary, and plan again.
//	// The prompt is History[i] for each i of p.Send, with the summary before p.Send[p.SummaryAt] if p.SendSummary, and New.
//
// and after the reply, with both messages in the history and no New:
//
//	for _, batch := range window.PlanSummary(in) { … }
package window
