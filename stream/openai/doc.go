// Package openai implements [stream.Model] and [stream.Embedder] for servers with OpenAI's API: OpenAI itself, Ollama,
// llama.cpp, vLLM and others.
//
// # Why we use only a part of the library
//
// The library sashabaranov/go-openai builds the requests, except for the bodies of requests for replies, and parses error
// responses. No other package imports it. This package encodes those bodies itself, because the library allocates for each
// message of the prompt. It reads streamed responses without the library, for four reasons:
//
//   - The library returns io.EOF for a truncated stream, for an empty stream and for a page of HTML, the same as for success.
//   - The library hangs on an error line without a line end.
//   - The library does not limit the size of lines and bodies.
//   - The library allocates four times per token.
//
// # The path of a request
//
//	retry.go     Generate makes an attempt, and retries while the reply has no text
//	request.go   encodes and sends the request, and keeps the body of the response from the library
//	answer.go    reads the events of the body until the model reports the end of the reply
//	scan.go      parses the common forms of an event by hand, without allocating
//	chunk.go     parses any other event with encoding/json
//	thinking.go  cuts the block <think>…</think> off the beginning of the text
//	failure.go   converts a failure to a public message and a cause for the log
//	overflow.go  recognises that the model's context cannot hold the request
//	embed.go     requests and parses embeddings
//	probe.go     examines a server: its models, the size of their contexts, and why it cannot be used (problem.go)
//	list.go      parses lists of models
//	detect.go    finds local servers and their models
//
// # Rules
//
//   - A reply succeeds only if the model has sent a finish reason or [DONE]. If the body ends without them, the reply fails
//     and keeps its text.
//   - Callers and logs never get the text of a provider's error, because it may quote prompts, keys and paths. The log
//     contains only the status and a short identifier.
//   - Generate retries up to three times if the server refused or broke the connection, or responded with 408, 429 or
//     5xx. It does not retry after the first text of the reply, after an untrusted certificate, or if the quota is used
//     up. The delays are 0.5, 1 and 2 s, each up to a quarter shorter or longer. A Retry-After of up to 30 s replaces the
//     delay. After a longer Retry-After, Generate fails at once.
//   - There is no timeout for response headers: we have seen a busy local model send nothing for 12 s. The timeouts of
//     [stream.Pump] limit the silence. Every line that is not empty ends a silence, even a comment.
//   - After the finish reason, Generate waits up to 3 s for usage and [DONE]. After [DONE], it waits up to 50 ms for the end
//     of the body, so that the HTTP client can reuse the connection.
//   - A line has at most 1 MiB. A response has at most 64 MiB, and 512 bytes more for each byte of its text. An error
//     response is read up to 64 KiB, a list of models up to 4 MiB, and embeddings up to 128 KiB for each text.
//   - The model's reasoning is not part of the reply's text: neither the fields reasoning_content, reasoning and thinking, nor a
//     block <think>…</think> at the beginning of the text. A model whose chat template begins the block sends only its end,
//     so its server must be configured to move the reasoning to a field. The text of a refusal is the reply's text.
//   - Text that may be the beginning of such a block is held back, and so is half a character. It is dropped if the response
//     fails and the request may be sent again.
//   - Some servers refuse a request whose prompt is too long for the model's context. Generate then returns the code
//     [stream.CodeContextTooLong], with the sizes that the server sent.
//   - Generate does not follow redirects: a POST could become a GET, and another host could get the key.
//
// The tests replay responses of real servers (testdata).
package openai
