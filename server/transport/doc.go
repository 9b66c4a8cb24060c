// Package transport limits the network connections of the server: the time without progress, the number of connections, and the
// number of connections of each client. It works below HTTP, so the limits apply to every handler, to event streams, and to
// sockets.
//
// # Progress
//
// If a client does not read, its connection is cut after [Stall]. Each write is divided into pieces of 16 KiB, and each piece may
// take that time. On Linux, the kernel has the same timeout (TCP_USER_TIMEOUT) for bytes that a write has left in the send
// buffer. The send buffer is small, so a client that does not read costs little memory until it is cut. A cut discards the
// unsent bytes.
//
// Deadlines of reads are set elsewhere: by http.Server.ReadHeaderTimeout for the headers, by package server for the body, and
// by package socket for a message.
//
// # Number of connections
//
// [Options] limit the open connections of the process, and those of one client address. For IPv6, a network /64 counts as one
// address, because one customer usually has all addresses of such a network. A loopback address has no limit of its own: its
// clients are programs of this machine, or a proxy.
//
// A connection above a limit is not served: [Connections.Admit] returns the reason, and the server responds with 503. Such a
// connection lives for at most 2 s (refusalTime). At most 64 connections (maxRefusals) wait for such a response at once. Above
// that number, connections are closed without a response, so refusals cannot take the server's memory.
//
// # Proxies
//
// All requests through a proxy come from the address of the proxy. If the peer of a connection is a trusted proxy, its client is
// the last address in X-Forwarded-For that is no trusted proxy. Addresses before that one are claims of the client and are never
// used. A connection from a trusted proxy counts for the client of its current request, until the response is complete. The
// connection of a WebSocket counts until it is closed.
package transport
