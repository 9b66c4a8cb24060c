// Package service is the interface between the domain and the server. [Service] connects packages turn, follow and
// background on one store and one model, starts them and drains them. Sends, cancels and clears are methods of the
// embedded turn.Turns. Views are methods of the embedded follow.Follower. This package has the methods that need
// several of these packages: deletion and expiry of sessions, history with live text, previews and figures. To create
// or list sessions, the server calls the Store directly.
//
// # Life
//
//	New ──▶ Start: joins the other nodes; ends orphans; starts expiry, following and the search for orphans
//	    ──▶ Drain: ends turns, summaries and embeddings in parallel; then stops expiry, following and the search
//
// A drain cancels embedding jobs at once. Turns and summary jobs may continue until the context of Drain ends. Then
// summary jobs are cancelled, and turns end as interrupted and keep their text. Following continues until no turn is
// live, because it delivers cancels from other nodes.
//
// # Expiry
//
// A session is removed from the store when it expires, not only hidden. RemoveExpired returns the time at which the next
// session expires. The service compares this time with the wall clock each second, so that it also notices a clock that
// is set, and the end of a suspension of the machine. A failed removal is retried after a second. A removal runs at
// least once a minute, because other nodes create sessions too.
package service
