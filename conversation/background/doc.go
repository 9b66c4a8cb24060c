// Package background does work after replies: it summarises old messages ([Summaries]) and makes embeddings of
// exchanges ([Embeddings]), so that the next turn need not wait. Summaries and Embeddings each have a [Worker].
//
// # Rules
//
//   - A session has one job of each kind at a time. A new job waits until the running job has ended. The new job
//     replaces a job that waits already, because the new job knows newer messages.
//   - A lost job does no harm: after a later reply, a new job does the same work. So jobs are dropped when too many
//     jobs are running, in a drain, and when the session is gone.
//   - Messages are summarised after a reply that left the window over 80 % full (window.PlanSummary). A turn summarises
//     before its reply only if the summary was not ready in time. The turn waits 10 s for a job that it starts, and 2 s
//     for a job that was running already. Then the turn continues with the messages that fit, and its report names the
//     fault.
//   - A summary is stored by compare-and-set on the last message that the previous summary covers. If two nodes
//     summarise one session, the store accepts only the first summary, and the second node adopts it.
//   - The tokens of a summary count in the usage, like the tokens of a reply.
//   - The model gets the messages to summarise as data: they are quoted as JSON, so a message cannot pose as an
//     instruction.
//   - A turn waits 200 ms for the embedding of its message, then compares only words. After a failure, turns compare
//     only words and do not wait. They use embeddings again after an embedding job has succeeded.
package background
