// Package tokens counts how many tokens a text is for a model, with OpenAI's own vocabularies, which are embedded.
//
// A count is exact for ordinary text: the same as that of OpenAI's tiktoken. What looks like a special token
// ("<|endoftext|>") is counted as text, because a user typed it. The overhead of the chat format is not counted here but in
// conversation/window. Each message is counted once, when it is written, and its count stored with it; so the cost of
// a prompt is arithmetic. For models of other makers the count is an estimate, and replies carry the provider's own
// figures where it gives them.
//
// # Time
//
// Counting is on the path of a request, and users choose the text. So the time must grow linearly with the text, whatever it
// says. Two faults of tokenizers are known to break that: merging a long word takes quadratic time in older versions of
// the library (2 s for 10,000 emoji), and its blank lines take quadratic time in today's (blank.go works around it). A test
// compares many hostile texts with ordinary prose of the same length.
//
// # Memory
//
// Measured on one core: the o200k vocabulary takes about 50 ms and 7 MiB of heap to build, cl100k 30 ms and 3.5 MiB, once for
// each [Counter], and both take 12 MiB of the binary. A vocabulary is built on first use; [Counter.Warm] builds it in the
// background when a server starts, so that no request has to wait. A hundred words take about 45 µs to count, and the most
// expensive text of 10,000 characters that we found 9 ms.
package tokens
