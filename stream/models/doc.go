// Package models holds the configured models, and what the server has learned about each of them.
//
// A [Set] is the list of the configured models. It does not change while the process runs. A [Model] is one of them: it
// implements [stream.Model] with the client of its server. Its name is the operator's name for it, for example "fast"; the
// provider's name may differ.
//
// # What is learned about a model
//
//   - Its state. Each model has a goroutine that probes the server ([openai.Probe]), and completed replies count too: see the
//     table in status.go. A probe generates no tokens. A reply that fails causes a probe at once, unless the request itself may
//     be the reason ([openai.Doubtful]).
//   - The provider's name of a model that is configured without one: the first chat model of the server's list.
//   - The size of its context, in the provider's tokens. The first source that has the size counts: the configuration, the
//     list of models, llama.cpp's /props, Ollama's /api/show, a request that the provider refused as too long. For 10 minutes, a
//     refusal also counts if it shows a smaller size than the server reports; it never changes a configured size. See context.go.
//   - The ratio of the provider's tokens to our estimate ([Model.Scale]). Each account counts once. See scale.go.
//
// Nothing of this is stored. Each node learns it again after a start, with the first probe and the first replies.
//
// # Without a configured model
//
// The set then has one model, named "default". The simulated model answers for it until a local model server appears
// ([openai.Detect]). The set looks for one at the start, and then every 5 s. Once found, the local server stays.
//
// # Timings
//
//	1 s     first delay before a failed probe is repeated; it doubles      intervals.retryFirst
//	10 s    longest such delay                                             intervals.retryMost
//	10 min  time for which the size in a refusal counts                    refusalLife
//	60 s    interval of the probes of a server that answers                intervals.probeEvery
//	10 s    timeout of a probe                                             probeTimeout
//	5 s     interval of the searches for a local server                    intervals.detectEvery
package models
