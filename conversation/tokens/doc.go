// Package tokens counts the tokens of a text for a model, with OpenAI's vocabularies, which are embedded in the binary.
//
// The count of an ordinary text equals the count of OpenAI's tiktoken. Text that looks like a special token
// ("<|endoftext|>") is counted as text, because a user typed it. Package conversation/window adds the overhead of the
// chat format. Each message is counted once, when it is written, and the count is stored with the message. So the size
// of a prompt is a sum of stored counts. For models of other vendors, the count is an estimate. The
// provider's figures for a reply count for its usage, and do not replace the count.
//
// A [Counter] splits a text into pieces (split.go), for example words, and merges the bytes of each piece into tokens
// (vocabulary.go). No Go library splits the text for o200k_base without a regular expression. With such a library,
// 100 words took 50 µs and 728 allocations, some texts took quadratic time, and some texts lost their last token.
//
// # Time
//
// A request waits while its text is counted, and users choose the text. So the time must grow linearly with the length
// of any text. A test compares many hostile texts with ordinary prose of the same length.
//
// # Cost
//
// These figures were measured on one core. Building the o200k vocabulary takes about 4 ms and 2 MiB of heap; building
// cl100k takes half of that. Each Counter builds its own vocabulary, on first use. A server calls [Counter.Warm] in the
// background at its first API request, so that an idle server has no vocabulary, and a message seldom waits. The two
// vocabularies take 2.3 MB of the binary. Counting 100 words takes about 3 µs and no allocation. The most expensive known
// text of 10,000 characters takes 4 ms.
package tokens
