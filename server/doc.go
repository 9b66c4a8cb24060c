// Package server is Parley's HTTP side: routes, authentication, limits, response shapes, and server-sent events. The rules of
// conversations are in package conversation and its sub-packages. The sub-packages of server are server/api (the error table
// and the strict decoding of requests), server/socket (WebSocket connections), server/docs (the documentation), and
// server/transport (the limits of network connections).
//
// # How a request is processed
//
//	identify         sets X-Request-Id for the response and the log, the security headers, and the deadline for the body
//	count            updates the metrics after the response
//	recover          turns a panic into a 500
//	admitConnection  refuses the request if the server or the client has too many connections (503)
//	handle           writes the handler's value or error as JSON
//	authorised       finds the key's principal; an invalid key gets 401, or 429 after 30 failures of the address in a minute
//	admit            counts the request against the limits (429); authorised then checks the scope (403)
//	strict           refuses unknown or repeated query parameters, and repeated headers (400)
//	handler          decodes the body, calls the conversation service, and returns a value or an error
//
// Handlers return errors and never write them. [parley/server/api.Describe] converts each to the error that the caller sees.
// If the server is at fault, the cause is logged once, with the request's id. Every response has X-Request-Id. Every response
// under /v1, also the 101 of a handshake, has the X-RateLimit headers, except the 500 after a panic.
//
// The file authorise.go authenticates requests: verify for REST and event streams, verifyHandshake for WebSockets, which may
// present a ticket. Add a new way to authenticate to that file.
//
// # A new endpoint
//
// Add the endpoint to the table in Server.route (server.go), with its scope and its query parameters. Write the handler, and
// describe the endpoint in docs/openapi.yaml. The tests TestOpenAPI_…, TestScopes_… and TestDocs_… check that the table,
// openapi.yaml and the served reference agree. Metrics and the rate limit headers need no change. New counters go into Metrics
// (metrics.go), which also increments them.
//
// # Admission
//
// The first store operation of a request counts and admits the request, in the same round trip or transaction. So limits are
// exact over all nodes and cost no extra round trip. If the handler has called no store operation, admit admits the request
// after the handler. If a limit then refuses the request, the 429 replaces any other error. So an invalid request counts too.
// A failed authentication counts against the client's address (for IPv6, its /64 network), in the memory of this process. It
// never affects a request with a valid key.
//
// An object of another account or mode, and a malformed id in a path, give the same 404 as an object that does not exist.
//
// # Deadlines and bounds
//
//   - A body has at most 1 MiB and must arrive within 30 s (bodyTimeout). Headers must arrive within 10 s, which cmd/parley
//     enforces.
//   - A request that needs the store gets 503 with Retry-After within 2 s if the store is unreachable.
//   - A send without streaming waits until its reply ends. If the caller disconnects, the reply goes on. A caller that closes
//     only its sending side still gets the response. If the key is revoked, the caller gets 401 within a second, also while
//     the send is in the queue of its session.
//   - Package transport limits the connections, and cuts a connection if its client does not read for 30 s. It also finds the
//     address of a client behind a trusted proxy.
//   - A send needs a slot for sends in flight (see turn.Turns.TakeSlot). If none is free, it gets 503 before its body is read.
//   - Each 503 has a cause (see api.Causes), which a metric and the log have.
//   - The unread responses of an account and mode may occupy 16 MiB (maxUnread). Above that, a GET of a large page gets 503.
//     The server builds at most 8 pages of an account at the same time (maxPages). Other requests for pages wait.
//   - An event stream sends a comment every 15 s (commentInterval). The stream ends within a second after its key was revoked.
//   - BeginDrain starts a drain: from then on, /readyz and new handshakes fail. DrainSockets then closes the sockets.
//
// Logs contain no keys, tickets, query strings or texts of messages. Metrics contain no text from a request.
package server
