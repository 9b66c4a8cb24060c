// Package tokens counts the tokens of a text for a model, with OpenAI's vocabularies, which are embedded in the binary.
//
// The count of an ordinary text equals that of OpenAI's tiktoken. Text that looks like a special token ("<|endoftext|>")
// is counted as text, because a user typed it. Package conversation/window adds the overhead of the chat format. Each
// message is counted once, when it is written, and its count is stored with it, so the size of a prompt is a sum of
// stored counts. For models of other vendors the count is an estimate. A reply has the provider's own figures if it gives
// them.
//
// # Time
//
// Counting is on the path of a request, and users choose the text. So the time must grow linearly with the length of any
// text. Two faults of the library break that. Its older versions merge a long word in quadratic time: 2 s for 10,000
// emoji. Today's version counts blank lines in quadratic time, and blank.go works around that. A test compares many
// hostile texts with ordinary prose of the same length.
//
// # Cost
//
// Measured on one core: the o200k vocabulary takes about 50 ms and 7 MiB of heap to build, cl100k 30 ms and 3.5 MiB, once
// for each [Counter], and both take 12 MiB of the binary. A vocabulary is built on first use; [Counter.Warm] builds it in
// the background when a server starts, so that no request must wait. Counting 100 words takes about 45 µs. The most
// expensive text of 10,000 characters that we found takes 9 ms.
package tokens
