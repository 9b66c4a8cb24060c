// Package openai is a [stream.Model] and a [stream.Embedder] over any server with OpenAI's API: OpenAI itself, Ollama,
// llama.cpp, vLLM and others.
//
// # What we do ourselves, and why
//
// The library sashabaranov/go-openai, imported only here, builds the requests and parses error responses. We read the
// streamed response ourselves, because the library returns io.EOF, the same as for success, for a truncated stream, an empty
// one and a page of HTML; it hangs on an error line without an end; it does not bound lines or bodies; and it allocates four
// times a token.
//
// # The way of a request
//
//	retry.go     Generate repeats an attempt while no text has been passed on
//	request.go   the request goes out, and the response's body is kept from the library
//	answer.go    its lines are read as events until the model says that the reply is complete
//	scan.go      an event of the usual shape is read by hand, without allocating
//	chunk.go     any other event is read by encoding/json, which also is the reference that the fuzz tests compare with
//	failure.go   what went wrong becomes one public text, and a cause for the log
//	embed.go     the same for embeddings
//	detect.go    which local servers run, and which models they have
//
// # Rules
//
//   - Only a finish reason or [DONE] means success. Anything else, including a clean end of the body, is a failure that keeps
//     the text so far.
//   - A provider's text is never passed on or logged: it may quote prompts, keys and paths. Of its error only a short
//     identifier and the status are logged.
//   - A failed attempt is repeated up to three times, while no text of the reply was passed on, if the server refused or broke
//     the connection or answered 408, 429 or 5xx: after 0.5, 1 and 2 s, each up to a quarter shorter or longer. A Retry-After
//     of up to 30 s replaces the delay; after a longer one we fail at once.
//   - There is no timeout for headers: a local model that is busy with others was seen to send nothing for 12 s. The timeouts
//     of [stream.Pump] bound the silence, and every line that arrives, even a comment, counts as a sign of life.
//   - After the finish reason we wait up to 3 s for usage and [DONE], and after [DONE] 50 ms for the end of the body, which
//     lets the connection be used again.
//   - A line has at most 1 MiB and a response 64 MiB. Reasoning is not text of the reply.
//   - Redirects are not followed: a POST would become a GET, and the key would go to another host.
//
// The tests replay what real servers sent (testdata).
package openai
