// Package background does work after replies: it summarises old messages ([Summaries]) and makes embeddings of exchanges
// ([Embeddings]), so that the next turn finds both done and its first token is not late. Both run on the same kind of
// [Worker].
//
// # Rules
//
//   - A session has one job of each kind at a time. A job that arrives meanwhile waits; it replaces one that waits already,
//     because the newer one knows more.
//   - A lost job is no harm: a later reply finds the work undone and does it. So jobs are dropped where there are too many, in
//     a drain, and where the session is gone.
//   - Messages are summarised after a reply that left the window over 80 % full (window.PlanSummary). They are summarised
//     before a reply only where that was not done in time. That turn waits 10 s for a job that it starts, 2 s for one that is under
//     way; then it goes on with the messages that fit and reports the fault.
//   - A summary is stored by compare-and-set on the last message that the one before covers. Of two nodes that summarise one
//     session, one stores its summary and the other adopts it.
//   - A summary's tokens are counted like a reply's.
//   - Messages are data for the model that summarises: they are quoted as JSON, so a message cannot pose as an instruction.
//   - A turn waits 200 ms for the embedding of its message, then compares words alone. After a failure no turn waits, until an
//     embedding after a reply has succeeded.
package background
