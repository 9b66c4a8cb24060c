// Package background does work after replies: it summarises old messages ([Summaries]) and makes embeddings of exchanges
// ([Embeddings]), so that the next turn need not wait for them. Each has a [Worker].
//
// # Rules
//
//   - A session has one job of each kind at a time. A job that arrives meanwhile waits. It replaces a job that waits
//     already, because it knows newer messages.
//   - A lost job does no harm: after a later reply, a new job does the same work. So jobs are dropped when too many are
//     running, in a drain, and when the session is gone.
//   - Messages are summarised after a reply that left the window over 80 % full (window.PlanSummary). They are summarised
//     before a reply only if that was not done in time. That turn waits 10 s for a job that it starts, and 2 s for a
//     running one. Then it goes on with the messages that fit and reports the fault.
//   - A summary is stored by compare-and-set on the last message that the previous summary covers. If two nodes summarise
//     one session, one stores its summary and the other adopts it.
//   - A summary's tokens are counted like a reply's.
//   - The model gets the messages to summarise as data: they are quoted as JSON, so a message cannot pose as an
//     instruction.
//   - A turn waits 200 ms for the embedding of its message, then compares only words. After a failure no turn waits until
//     an embedding after a reply has succeeded.
package background
