// Package prompt fits a message into the context window of its session. It plans the prompt from the context that the
// store returned, and reports the decision about every message. It does no I/O. A caller uses a [Fit] like this:
//
//	f := prompt.New(context, message)
//	f.Compare(embedding)        // has an effect only in a semantic window; nil compares only words
//	f.Plan()                    // see window.Plan
//	f.Adopt(summary); f.Plan()  // after each new summary
//	f.Missing(f.Sent())         // ids of the messages to send that still lack their text
//	f.Fill(f.Sent(), messages)
//	f.Request(), f.Report(), f.Preview()
//
// # Rules
//
//   - The session's maxOutputTokens are the reply room; by default, a quarter of the window's maxTokens, at most 4,096. The
//     provider gets this number as the limit of the reply. The prompt must fit into the remaining tokens.
//   - The session's instructions are the first message of every prompt, with the role system. They are never left out, and the
//     other messages must fit into the tokens that are left (window.Size.Budget).
//   - If everything fits, everything is sent, except replies that failed or have no text.
//   - If not everything fits and compression is disabled, the store refuses the send with *conversation.OverflowError.
//     Nothing is left out silently.
//   - If compression is enabled, the retention policy chooses the messages that are sent word for word. If a summary is
//     sent, it replaces the other messages that it covers. All other messages are dropped, and the report counts them.
//   - A message and its reply form an exchange. An exchange is sent whole or not at all.
//   - The report counts every message of the session once: kept, in the summary, dropped or skipped.
package prompt
