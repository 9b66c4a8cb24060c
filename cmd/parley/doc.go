// Command parley is the conversation server: REST and a WebSocket in front of any OpenAI-compatible model.
//
//	parley serve      run the server
//	parley keys       create, list, revoke and rotate API keys, directly in the store
//	parley store      check the file of the embedded store for damage
//	parley bench      generate load, and measure what a server pays for it
//	parley version    print the version
//
// This package reads flags and environment variables, wires the other packages together, and starts and drains them. It is the
// only package that reads configuration: the others get small Options structs.
//
// # Start
//
// serve starts in this order. A mistake in the configuration ends serve before it changes anything. No request arrives before the
// service is ready:
//
//  1. Check the flags. Every flag has an environment variable. An error names the flag and the variable, and never repeats a
//     value that may hold a secret.
//  2. Open the models (package models): the configured models, or a local server (Ollama, llama.cpp), or the simulated model until
//     a local server is found. The simulated model is labelled as simulated everywhere, and PARLEY_REQUIRE_MODEL refuses it. A
//     configured model server need not run yet: it is probed in the background.
//  3. Open the store. The embedded store is locked by one process; Redis is shared by any number of nodes.
//  4. Start the conversation service. With the embedded store, the service ends the orphans of a crash before the first request.
//  5. Listen, and only then create the first admin key. A start that fails must not create a key, because nobody would see its
//     secret.
//  6. Print the address of the page, the store, the model, and the key if one was created. Logs go to standard error.
//
// # Drain
//
// SIGTERM and SIGINT drain the server. Every deployment drains the server, in these steps:
//
//  1. /readyz answers 503, so that load balancers stop sending; new sends get 503 with Retry-After. Reading still works.
//  2. WebSockets get a draining frame. The server closes a WebSocket with 1012 as soon as no session of the WebSocket has a live
//     reply.
//  3. Live replies have --drain-timeout (30 s) to complete. After that, the server ends them as interrupted, with their text.
//  4. Sockets stay flushTimeout (2 s) longer, so that viewers see how the replies ended.
//  5. The listener closes, and the server has flushTimeout to write pending responses. Then the key cache and the store close.
//
// If the store does not respond, turns give up their endings 2 s after --drain-timeout. The process ends at the latest
// drainMargin (10 s) after --drain-timeout, with exit code 1 if a step is not complete.
//
// A second signal ends the process at once, like a crash. The store stays consistent, and the next start, or another node, ends
// the live replies as interrupted.
//
// # Exit codes
//
//	0    success, also after a drain
//	1    a command failed: configuration, store, address, a key that does not exist, a damaged store, a drain that was not complete
//	     in time
//	2    the command line is wrong: unknown flag, missing value, value out of range
//	130  a second SIGINT, if the parent process had SIGINT ignored; otherwise a second signal kills the process
//
// # Timings
//
// Constants in listen.go limit the time that a client has to send its headers (headerTimeout), and the time that an idle
// connection stays open (idleTimeout). A response has no time limit, because a streamed reply may take any time. Instead,
// package transport cuts the connection of a client that does not read, and the model has two timeouts. --model-first-byte is
// 120 s, because a local server may first have to load the model. --model-stall is 60 s between bytes, because a model that
// is generating pauses for seconds, not for a minute.
//
// # Tests
//
// The tests of this package run the real binary: one process, several processes on one Redis, or one process with Chromium as its
// client. The first test that needs the binary builds it. Under `make test`, the binary has the race detector, and a test fails
// if its process reports a race. No test sets an upper limit on a duration: every wait has a timeout that only a hang reaches.
package main
