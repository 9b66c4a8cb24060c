// Package tokens counts the tokens of a text for a model, with OpenAI's vocabularies, which are embedded in the binary.
//
// The count of an ordinary text equals the count of OpenAI's tiktoken. Text that looks like a special token
// ("<|endoftext|>") is counted as text, because a user typed it. Package conversation/window adds the overhead of the
// chat format. Each message is counted once, when it is written, and the count is stored with the message. So the size
// of a prompt is a sum of stored counts. For models of other vendors, the count is an estimate. If the provider gives
// figures for a reply, these replace the count.
//
// # Time
//
// A request waits while its text is counted, and users choose the text. So the time must grow linearly with the length
// of any text. The library has had two faults. Older versions take quadratic time for a long word: 2 s for 10,000
// emoji. The current version takes quadratic time for blank lines; blank.go works around this fault. A test compares
// many hostile texts with ordinary prose of the same length.
//
// # Cost
//
// These figures were measured on one core. Building the o200k vocabulary takes about 30 ms and 7 MiB of heap; building
// cl100k takes 20 ms and 3.5 MiB. Each [Counter] builds its own vocabulary, on first use. A server calls [Counter.Warm]
// in the background at its first API request, so that an idle server has no vocabulary, and a message seldom waits. The
// first text with blank lines takes as long again (listBlanks). The two vocabularies take 12 MiB of the binary.
// Counting 100 words takes about 45 µs. The most expensive known text of 10,000 characters takes 9 ms. The library takes
// up to 40 bytes of memory for each byte of text, so longer texts are counted in parts of 64 KiB.
package tokens
