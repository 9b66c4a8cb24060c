// Package bench is the load generator of `parley bench`, with the two servers that a measurement needs beside the one under load.
//
// # Workloads
//
//	Streams     n callers, each with a socket of its own for each turn; the model pauses between tokens
//	Requests    n callers that wait for whole replies in JSON
//	Viewers     one reply at a time, with n viewers
//	Idle        n sockets without traffic
//	Admissions  n callers with requests that are refused after the check of the key and the rate limit
//	Growth      the cost at several sizes: the number of sessions, messages, viewers or keys doubles from size to size
//
// A run creates its sessions, makes one turn alone, warms up, and measures. [Report] has the figures of the measured time. A turn
// that has not ended does not count. If [Report.Err] returns an error, the figures must not be used.
//
// # Where the figures come from
//
//   - Times are measured by the client, in histograms (hdrhistogram).
//   - CPU time, memory and written bytes are those of the server's process, from /proc: the process that listens on the port of
//     the address.
//   - Allocations are the metric go_memstats_mallocs_total of the server's /metrics.
//   - Each transaction of the embedded store counts as two calls of fdatasync. The meta pages of its file have the number of
//     transactions.
//   - Redis itself reports its CPU time and its commands (INFO).
//
// # The other servers
//
// [ScriptedModel] is a model server. The messages of the load generator tell it what to reply: "say 200 every 20ms". [Pipe] is
// the bare pipe with which Parley is compared: it relays the model's deltas and does nothing else.
package bench
