// Package service is the domain as the server sees it. [Service] wires the engines together on one store and one model, starts them and
// drains them. Sends, cancels and clears are methods of the embedded turn.Turns, views those of the embedded follow.Follower; what
// remains here concerns several of them: whole sessions, history with live text, previews and figures. Creating and listing
// sessions needs no engine; the server asks the Store for that.
//
// # Life
//
//	New ──▶ Start: joins the other nodes; ends orphans; then expiry, following and the search for orphans run
//	    ──▶ Drain: turns, summaries and embeddings end, all at once; then the others stop
//
// Embeddings are cancelled when a drain begins. Turns and summaries may go on until its context ends; then turns end as interrupted
// with their text kept. Following goes on until no turn is live, because cancels from other nodes arrive that way.
//
// # Expiry
//
// A session is removed from the store when its time has come, not only hidden: RemoveExpired says when the next one expires. A
// removal that failed is repeated after a second. A sweep runs at least once a minute, because other nodes create sessions too.
package service
