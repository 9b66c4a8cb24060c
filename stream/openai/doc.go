// Package openai is a [stream.Model] and a [stream.Embedder] over any server with OpenAI's API: OpenAI itself, Ollama,
// llama.cpp, vLLM and others.
//
// # The library, and what we do without it
//
// The library sashabaranov/go-openai, imported only here, builds the requests and parses error responses. We read the
// streamed response ourselves, for four reasons. For a truncated stream, an empty one and a page of HTML, the library
// returns io.EOF, the same as for success. It hangs on an error line without a line end. It does not bound lines or
// bodies. It allocates four times a token.
//
// # The path of a request
//
//	retry.go     Generate repeats an attempt while no text has been passed on
//	request.go   sends the request, and takes the body of the response instead of the library
//	answer.go    reads the lines of the body as events until the model says that the reply is complete
//	scan.go      parses an event of the usual shape by hand, without allocating
//	chunk.go     parses any other event with encoding/json, which is also the reference in the fuzz tests
//	failure.go   turns a failure into one public text, and a cause for the log
//	embed.go     requests and parses embeddings
//	detect.go    finds local servers and their models
//
// # Rules
//
//   - Only a finish reason or [DONE] means success. Anything else, including a clean end of the body, is a failure that keeps
//     the text so far.
//   - The text of a provider's error is never passed on or logged: it may quote prompts, keys and paths. We log only the
//     status and a short identifier.
//   - We retry up to three times if the server refused or broke the connection, or responded with 408, 429 or 5xx. Once text
//     of the reply was passed on, we do not retry. The delays are 0.5, 1 and 2 s, each up to a quarter shorter or longer. A
//     Retry-After of up to 30 s replaces the delay; after a longer one we fail at once.
//   - There is no timeout for headers: a busy local model was seen to send nothing for 12 s. The timeouts of [stream.Pump]
//     bound the silence, and every line that arrives, even a comment, ends it.
//   - After the finish reason we wait up to 3 s for usage and [DONE]. After [DONE] we wait up to 50 ms for the end of the
//     body, so that the connection can be reused.
//   - A line has at most 1 MiB, and a response at most 64 MiB. Reasoning is not text of the reply.
//   - Redirects are not followed: a POST could become a GET, and the key could go to another host.
//
// The tests replay responses of real servers (testdata).
package openai
