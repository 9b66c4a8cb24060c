// Package service is the interface between the domain and the server. [Service] connects packages turn, follow and
// background on one store and one model, starts them and drains them. Sends, cancels and clears are methods of the
// embedded turn.Turns. Views are methods of the embedded follow.Follower. The methods of this package need several of
// those packages: deletion and expiry of sessions, history with live text, previews and figures. To create or list
// sessions, the server calls the Store directly.
//
// # Life
//
//	New ──▶ Start: joins the other nodes; ends orphans; then expiry, following and the search for orphans run
//	    ──▶ Drain: turns, summaries and embeddings end, all at once; then the others stop
//
// A drain cancels embeddings at once. Turns and summaries may go on until its context ends; then turns end as
// interrupted, with their text kept. Following goes on until no turn is live, because cancels from other nodes arrive
// that way.
//
// # Expiry
//
// A session is removed from the store when it expires, not only hidden. RemoveExpired returns the time at which the next
// one expires. A failed removal is retried after a second. A removal runs at least once a minute, because other nodes
// create sessions too.
package service
