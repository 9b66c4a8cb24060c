// Package prompt fits a message into the context window of its session: from what the store returned it plans what the model
// is sent, and reports what became of every message. It does no I/O. Whoever fits a message drives a [Fit]:
//
//	f := prompt.New(context, message)
//	f.Compare(embedding)        // only for a semantic window; nil compares words alone
//	f.Plan()                    // see window.Plan
//	f.Adopt(summary); f.Plan()  // as often as there is a newer summary
//	f.Missing(f.Sent())         // ids of messages that are sent, and whose text is only in the store
//	f.Fill(messages)
//	f.Request(), f.Report(), f.Preview()
//
// # Rules
//
//   - A quarter of the window's maxTokens, at most 4,096, is the reply room: it is sent as the provider's limit. The prompt must
//     fit into the rest (window.Budget).
//   - If everything fits, everything is sent, except replies that failed or have no text.
//   - If not, and compression is disabled, the send is refused with conversation.OverflowError. Nothing is forgotten silently.
//   - If compression is enabled, the retention policy chooses which messages are sent word for word; the summary stands for those
//     that it covers. Others are dropped, and the report says so.
//   - A user's message and its reply, an exchange, are sent together or not at all.
//   - The report counts every message of the session once: kept, in the summary, dropped or skipped.
package prompt
