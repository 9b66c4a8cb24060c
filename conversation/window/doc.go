// Package window chooses the messages of a conversation that go into the prompt. It is pure: no I/O, no clock, no
// goroutines and no state between calls. So all its functions may be called from any goroutine.
//
// # The window
//
//	maxTokens    = reply room + prompt overhead + instructions + budget
//	reply room   = a quarter of maxTokens, at most 4,096, and at most the configured limit of a reply ([Size.ReplyRoom])
//	               if no limit is configured, the provider gets the reply room as the reply's limit
//	               a model that reasons gets more, and its text is stopped at the reply room (turn.boundedTo)
//	               a model that ignores its limit is stopped at a limit in bytes ([ReplyBytes])
//	instructions = tokens of the session's instructions, which are in every prompt, including 4 for the chat format
//	budget       = tokens for the messages of the prompt, including 4 each for the chat format ([Size.Budget])
//
// [Size.Check] decides from stored counts whether the window can hold a new message. Without summaries (compressionEnabled
// is false), the whole history must fit together with the new message, so nothing is silently forgotten. With
// summaries, only the new message must fit. A send that does not fit is refused with 413, and the session does not
// change. If Size.Check has passed, [Plan] cannot fail.
//
// # What is kept
//
// If everything fits, everything is sent word for word, except replies that failed or have no text. If not, the policy
// chooses the exchanges that stay word for word. An exchange is a message and its reply, kept or left out together.
//
// Every policy first keeps system messages, with the replies to them.
//
//   - fifo then keeps the newest exchanges.
//   - priority then keeps the messages with the highest priority in their metadata, then the newest.
//   - semantic then keeps the newest exchange, then the exchanges closest in meaning to the new message. It compares words
//     (BM25, [LexicalScores]). If embeddings are available in time, it also compares embeddings ([FuseScores]).
//
// The chosen messages are sent in their original order. [Result] has a [Decision] for each message. The counts in the
// Result become the context report of the reply.
//
// # The summary
//
// With every policy, a summary covers the messages of the session from the first to [Summary.Last]. It is sent as a
// system message, after the system messages at the beginning of the session. It takes at most a quarter of the budget and
// 1,024 tokens ([Size.SummaryLimit]). A message that is sent neither word for word nor in the summary is dropped.
//
// A summary needs a call to the model. The call is made after a reply that left the window over 80 % full
// ([PlanSummary]). So the next turn need not wait for the call. fifo then summarises the oldest messages until the
// other messages, with the summary, take at most half of the budget. So not every reply needs another call. The
// priority and semantic policies summarise everything when the messages in no summary take more than an eighth of the
// budget. A turn must summarise first ([Result.SummariseFirst]) if its plan would drop too many tokens that are in no
// summary: any at all with fifo, more than an eighth of the budget with the other policies. If the model fails to
// summarise, the turn continues with the plan, and the report counts the dropped messages.
//
// # How a turn uses it
//
//	in := window.Input{Size: …, Compression: …, Policy: …, Summary: …, History: …, New: …}
//	if in.Policy == window.Semantic {
//		// exchanges[e] holds the Terms of exchange e, and vectors[e] its Vector; both were stored with the reply.
//		scores := window.LexicalScores(window.TermsOf(content), exchanges)
//		scores = window.FuseScores(scores, vector, vectors)
//		// scores[e] becomes the Similarity of the reply in exchange e.
//	}
//	p := window.Plan(in)
//	// If len(p.SummariseFirst) > 0, summarise each batch with one call, store the summary, and plan again.
//	// The prompt has History[i] for each i in p.Send, then New. If p.SendSummary, the summary comes before p.Send[p.SummaryAt].
//
// After the reply, History also has the new message and its reply, and New is not used:
//
//	for _, batch := range window.PlanSummary(in) { … }
package window
