// Package simulated is a [stream.Model] that needs no network. The model has no intelligence: every reply with text
// begins with a greeting that says so. It is for demonstrations, for tests, and for users who have no model yet. The same
// request always gets the same reply.
//
// The last user message may begin with a command:
//
//	/words 500   a reply of 500 words (at most 100,000) after the greeting
//	/slow        a delay of half a second before each word
//	/fail        some text, then a failure
//	/stall       some text, then silence until the reply is cancelled or times out
//	/empty       a reply without text, which fails with empty_reply
//
// A summary has no greeting. It quotes the beginning of each message, so that a test can recognise the summarised messages.
//
// MaxTokens limits the number of words. The model reports no usage, because it has no tokenizer. The service then
// estimates the usage.
package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
	"unicode"

	"parley/stream"
)

// DefaultDelay is the delay before each word. A fast model takes about as long. NoDelay means no delay, for tests.
const (
	DefaultDelay = 20 * time.Millisecond
	NoDelay      = time.Duration(-1)

	slowDelay = 500 * time.Millisecond
	maxWords  = 100_000
	maxQuote  = 160 // maximum number of characters that a reply quotes of a message
)

// Options configure a [Model].
type Options struct {
	// Delay is the time before each word; 0 means DefaultDelay, NoDelay means none.
	Delay time.Duration
}

// Model is the simulated model. The methods of a Model may be called from any goroutine.
type Model struct{ delay time.Duration }

var _ stream.Model = (*Model)(nil)

// New returns a simulated model.
func New(options Options) *Model {
	if options.Delay == 0 {
		options.Delay = DefaultDelay
	}
	return &Model{delay: options.Delay}
}

// Name returns "parley-simulated".
func (m *Model) Name() string { return "parley-simulated" }

// Generate writes one reply, word by word (see [stream.Model]). MaxTokens limits the number of words.
func (m *Model) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	p, delay := compose(request.Messages), m.delay
	if request.Summary {
		p = plan{text: summary(lastOf(request.Messages)), delay: NoDelay} // viewers are not shown the words of a summary
	}
	if p.delay != 0 {
		delay = p.delay
	}
	whole, err := writeWords(ctx, p.text, request.MaxTokens, delay, write)
	switch {
	case err != nil:
		return stream.Result{}, err
	case !whole:
		return stream.Result{FinishReason: "length"}, nil
	case p.then == fail:
		return stream.Result{}, &stream.ModelError{
			Code:    stream.CodeProviderError,
			Message: "the simulated model failed, as it was asked to",
			Cause:   errors.New("/fail"),
		}
	case p.then == stall:
		<-ctx.Done()
		return stream.Result{}, ctx.Err()
	}
	return stream.Result{FinishReason: "stop"}, nil
}

// writeWords writes at most maxTokens words of text, or all words if maxTokens is 0. whole is true if it has written all
// words.
func writeWords(ctx context.Context, text string, maxTokens int, delay time.Duration, write func([]byte)) (whole bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	timer := time.NewTimer(max(0, delay))
	defer timer.Stop()
	rest := []byte(text)
	for n := 1; len(rest) > 0; n++ {
		if delay > 0 {
			timer.Reset(delay)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if maxTokens > 0 && n > maxTokens {
			return false, nil
		}
		end := wordEnd(rest)
		write(rest[:end])
		rest = rest[end:]
	}
	return true, nil
}

// wordEnd returns the length of the first word of text and of the white space after the word, in bytes.
func wordEnd(text []byte) int {
	isSpace := func(b byte) bool { return b == ' ' || b == '\n' }
	end := 0
	for end < len(text) && !isSpace(text[end]) {
		end++
	}
	for end < len(text) && isSpace(text[end]) {
		end++
	}
	return end
}

// ending is the model's action after the text: stop normally, fail, or stall.
type ending uint8

const (
	stop ending = iota
	fail
	stall
)

// plan describes a reply before the model writes it.
type plan struct {
	text  string
	then  ending
	delay time.Duration // 0 means the delay of the model
}

const greeting = "I am **Parley's built-in simulated model** 🤖: no AI, only a program that answers so that you can try things out.\n\n"

// compose returns the plan of a reply. The plan depends only on the messages.
func compose(messages []stream.PromptMessage) plan {
	content := lastOf(messages)
	command := append(strings.Fields(content), "", "")
	switch command[0] {
	case "/words":
		n, err := strconv.Atoi(command[1])
		if err != nil || n < 1 {
			n = 500
		}
		return plan{text: greeting + words(min(n, maxWords))}
	case "/slow":
		return plan{text: reply(messages, content), delay: slowDelay}
	case "/fail":
		return plan{text: greeting + "You asked for a failure: here it comes, in the middle of a", then: fail}
	case "/stall":
		return plan{text: greeting + "You asked me to stall: from here on, I say nothing", then: stall}
	case "/empty":
		return plan{}
	}
	return plan{text: reply(messages, content)}
}

// lastOf returns the content of the last user message. If there is no user message, it returns the content of the last
// message that is not empty.
func lastOf(messages []stream.PromptMessage) string {
	last := ""
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == "user" {
			return messages[i].Content
		}
		if last == "" {
			last = messages[i].Content
		}
	}
	return last
}

// reply returns the text of a reply to a message without a command. The text contains common Markdown, so that a developer
// sees how a page renders it.
func reply(messages []stream.PromptMessage, content string) string {
	var b strings.Builder
	b.WriteString(greeting)
	if content := quoted(content); content != "" {
		b.WriteString("You wrote:\n\n> " + content + "\n\n")
	}
	b.WriteString("I was given " + strconv.Itoa(len(messages)) + " message(s), and read none of them. A real model would now say something clever; " +
		"I can only show how a reply looks:\n\n" +
		"- **bold**, *italic* and `code`\n" +
		"- characters of every length: naïve café, Ελληνικά, 日本語, 👩‍🚀 🎉\n" +
		"- a [link](https://example.com/) that leads nowhere\n\n" +
		"```go\nfunc main() {\n\tfmt.Println(\"hello, 世界 👋\")\n}\n```\n\n")
	b.WriteString(closings[choose(messages, len(closings))])
	b.WriteString("\n\nTry `/words 500`, `/slow`, `/fail`, `/stall` or `/empty`; or start Ollama, or set `OPENAI_BASE_URL`, and talk to a real model.")
	return b.String()
}

// summary summarises messages, given as one JSON object per line. It repeats the previous summary and quotes the first 8
// words of each message.
func summary(lines string) string {
	const wordsEach = 8
	var b strings.Builder
	b.WriteString("(simulated)")
	for line := range strings.Lines(lines) {
		var message struct{ Summary, Role, Content string }
		if json.Unmarshal([]byte(line), &message) != nil {
			continue
		}
		b.WriteString(strings.TrimPrefix(message.Summary, "(simulated)"))
		if all := strings.Fields(message.Content); len(all) > 0 {
			b.WriteString(" " + message.Role + ": " + strings.Join(all[:min(len(all), wordsEach)], " ") + ";")
		}
	}
	return b.String()
}

// quoted returns the first maxQuote characters of a message, as one line without control characters.
func quoted(content string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.Join(strings.Fields(content), " ") {
		if n++; n > maxQuote {
			return strings.TrimSpace(b.String()) + " …"
		}
		if unicode.IsControl(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

var closings = [...]string{
	"Close this page while I write, and open it again: the reply is the server's, and goes on without you.",
	"Open this page in a second window: both show the same reply, to the letter.",
	"Pull the network's plug while I write: when it is back you miss nothing, and see nothing twice.",
}

// choose returns a number from 0 to n-1. It depends only on the messages.
func choose(messages []stream.PromptMessage, n int) int {
	h := fnv.New32a()
	for _, m := range messages {
		_, _ = h.Write([]byte(m.Role + "\x00" + m.Content + "\x00"))
	}
	return int(h.Sum32() % uint32(n))
}

// words returns n words in numbered paragraphs, so that a reader notices missing text.
func words(n int) string {
	const line = 20
	pool := strings.Fields("a reply is an append-only text and a viewer is an offset into it; nothing is lost, nothing comes twice – naïve, 日本, 🎉")
	var b strings.Builder
	for i := range n {
		switch {
		case i%line == 0 && i > 0:
			b.WriteString("\n\n")
		case i > 0:
			b.WriteByte(' ')
		}
		if i%line == 0 {
			b.WriteString(strconv.Itoa(i+1) + ".")
		} else {
			b.WriteString(pool[(i-i/line-1)%len(pool)])
		}
	}
	return b.String()
}
