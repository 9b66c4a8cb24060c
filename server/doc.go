// Package server is Parley's HTTP side: routes, authentication, limits, response shapes, and server-sent events. It decides
// nothing about conversations; package conversation does. Its sub-packages are server/api (the error table and the strict
// reading of requests), server/socket (WebSocket connections) and server/docs (the documentation).
//
// # The way of a request
//
//	identify    an X-Request-Id for the response and the log; a deadline for the body
//	count       metrics, after the response
//	recover     a panic becomes a 500
//	handle      writes the handler's value or error as JSON: the only place that does
//	authorised  whose key is it? 401 and, from the 31st failure a minute of one address, 429
//	admit       limits: 429. scope: 403
//	strict      unknown or repeated query parameters and headers: 400
//	handler     decodes the body, calls the engine, returns a value or an error
//
// Handlers return errors and never write them. [parley/server/api.Describe] turns each into what the caller sees; its cause
// is logged once, with the request's id. Every response has X-Request-Id; every response under /v1 has the X-RateLimit
// headers, the 101 of a handshake included.
//
// Requests are authenticated in authorise.go: verify for REST and event streams, verifyHandshake for a WebSocket, which
// may present a ticket. A further way to authenticate goes there.
//
// # A new endpoint
//
// Add it to the table in Server.route (server.go) with its scope and its query parameters, write the handler, and describe it in
// docs/openapi.yaml. Tests compare the three: TestOpenAPI_MatchesRoutes, TestScopes_EachRoute and TestDocs_EveryRoute. Metrics and
// the rate limit headers follow by themselves. New counters go into Metrics (metrics.go), which also shows where each is raised.
//
// # Admission
//
// A request is counted and admitted by its first store operation, in the same round trip or transaction, so limits are
// exact over all nodes and cost no extra trip. A request that needs no store is admitted afterwards: a refusal by a limit
// replaces any other error, so an invalid request counts too. A failed authentication counts against the address (IPv6:
// its /64), in this process's memory; a valid key is never refused for it.
//
// What another account or mode owns, and a malformed id in a path, give the same 404 as something that does not exist.
//
// # Deadlines and bounds
//
//   - A body has at most 1 MiB and must arrive within 30 s (bodyTimeout). Headers have 10 s, which cmd/parley sets.
//   - A request that needs the store gets 503 with Retry-After within 2 s if the store is unreachable.
//   - A send without streaming waits for its reply, for as long as the model may take. If the caller leaves, the reply goes
//     on. If the caller closes only its sending side, it still gets the response.
//   - An event stream sends a comment every 15 s (commentInterval), and a write to it may take 30 s. It ends within a
//     second of its key's revocation.
//   - A drain begins with /readyz and handshakes failing (BeginDrain). DrainSockets then closes the sockets.
//
// A log holds no key, ticket, query string or text of a message; metrics hold nothing that comes from a request.
package server
