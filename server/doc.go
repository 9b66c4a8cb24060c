// Package server is Parley's HTTP side: routes, authentication, limits, response shapes, and server-sent events. It decides
// nothing about conversations; package conversation does. Its sub-packages are server/api (the error table and the strict
// decoding of requests), server/socket (WebSocket connections) and server/docs (the documentation).
//
// # The way of a request
//
//	identify    an X-Request-Id for the response and the log; a deadline for the body
//	count       metrics, after the response
//	recover     a panic becomes a 500
//	handle      writes the handler's value or error as JSON: the only place that does
//	authorised  finds the principal of the key: 401 or, from the 31st failure a minute of one address, 429
//	admit       limits: 429. scope: 403
//	strict      unknown or repeated query parameters and headers: 400
//	handler     decodes the body, calls the engine, returns a value or an error
//
// Handlers return errors and never write them. [parley/server/api.Describe] converts each to the error that the caller sees. If
// the server is at fault, the cause is logged once, with the request's id. Every response has X-Request-Id; every response
// under /v1 has the X-RateLimit headers, the 101 of a handshake included.
//
// Requests are authenticated in authorise.go: verify for REST and event streams, verifyHandshake for a WebSocket, which
// may present a ticket. A further way to authenticate goes there.
//
// # A new endpoint
//
// Add it to the table in Server.route (server.go) with its scope and its query parameters, write the handler, and describe it in
// docs/openapi.yaml. Tests compare the three: TestOpenAPI_MatchesRoutes, TestScopes_EachRoute_403WithoutScope and
// TestDocs_EveryRoute_HasHeading. Metrics and the rate limit headers need no change. New counters go into Metrics
// (metrics.go), which also increments them.
//
// # Admission
//
// A request is counted and admitted by its first store operation, in the same round trip or transaction, so limits are
// exact over all nodes and cost no extra trip. A request that needs no store is admitted afterwards: if a limit refuses
// it, the 429 replaces any other error. So an invalid request counts too. A failed authentication counts against the address
// (IPv6: its /64), in this process's memory. It never affects a request with a valid key.
//
// An object of another account or mode, and a malformed id in a path, give the same 404 as an object that does not exist.
//
// # Deadlines and bounds
//
//   - A body has at most 1 MiB and must arrive within 30 s (bodyTimeout). Headers have 10 s, which cmd/parley sets.
//   - A request that needs the store gets 503 with Retry-After within 2 s if the store is unreachable.
//   - A send without streaming waits until its reply ends. If the caller disconnects, the reply goes on. If the caller closes
//     only its sending side, it still gets the response.
//   - An event stream sends a comment every 15 s (commentInterval), and a write to it may take 30 s. It ends within a
//     second of its key's revocation.
//   - A drain begins when /readyz and new handshakes start to fail (BeginDrain). DrainSockets then closes the sockets.
//
// A log holds no key, ticket, query string or text of a message; metrics hold no text from a request.
package server
