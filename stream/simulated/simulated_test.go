package simulated

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"parley/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func requestFor(content string) stream.Request {
	return stream.Request{Messages: []stream.PromptMessage{{Role: "system", Content: "Be brief."}, {Role: "user", Content: content}}}
}

// pumped calls stream.Pump with a simulated model. It returns the outcome and the text of the reply.
func pumped(ctx context.Context, request stream.Request, options Options) (stream.Outcome, string) {
	reply := stream.NewReply("msg_1")
	outcome := stream.Pump(ctx, New(options), request, reply, stream.Timeouts{FirstByte: 2 * time.Minute, Stall: time.Minute})
	text, _ := reply.Snapshot()
	return outcome, string(text)
}

var withoutDelay = Options{Delay: NoDelay}

func TestReply_BeginsWithGreeting(t *testing.T) {
	for _, content := range []string{"Hello", "", "/words 20", "/words", "/slow", "/fail", "/nonsense", "Summarise the conversation."} {
		synctest.Test(t, func(t *testing.T) {
			_, text := pumped(t.Context(), requestFor(content), withoutDelay)
			if !strings.HasPrefix(text, "I am **Parley's built-in simulated model** 🤖: no AI") {
				t.Errorf("the reply to %q is %q", content, text)
			}
		})
	}
}

func TestReply_SameRequest_SameReply(t *testing.T) {
	first, text := pumped(t.Context(), requestFor("Hello"), withoutDelay)
	_, again := pumped(t.Context(), requestFor("Hello"), withoutDelay)
	if first.State != stream.Completed || first.Result.FinishReason != "stop" || first.Result.Usage != nil {
		t.Errorf("the outcome is %+v, want completed with the finish reason stop and without usage", first)
	}
	if text != again {
		t.Errorf("the first reply is %q, the second reply is %q", text, again)
	}
	for _, piece := range []string{"> Hello\n", "2 message(s)", "\n- **bold**", "\n```go\n", "👩‍🚀", "日本語"} {
		if !strings.Contains(text, piece) {
			t.Errorf("the reply %q does not contain %q", text, piece)
		}
	}
	seen := map[string]bool{}
	for _, content := range strings.Fields("a b c d e f g h i j") {
		_, text := pumped(t.Context(), requestFor(content), withoutDelay)
		seen[text[strings.LastIndex(text, "```"):]] = true
	}
	if len(seen) != len(closings) {
		t.Errorf("ten messages got %d different closings, want %d", len(seen), len(closings))
	}
}

func TestReply_LongMessage_QuotesAtMost160Characters(t *testing.T) {
	_, text := pumped(t.Context(), requestFor(strings.Repeat("Grüße, 世界!\n\x07", 1000)), withoutDelay)
	_, quote, _ := strings.Cut(text, "> ")
	quote, _, _ = strings.Cut(quote, "\n")
	if n := utf8.RuneCountInString(quote); n > maxQuote+2 || !strings.HasSuffix(quote, " …") || strings.Contains(quote, "\x07") {
		t.Errorf("the reply quotes %d characters: %q", n, quote)
	}
}

func TestDelay_AppliesToEachWord(t *testing.T) {
	for _, test := range []struct {
		content string
		options Options
		each    time.Duration
	}{
		{"Hello", Options{}, 20 * time.Millisecond},
		{"Hello", Options{Delay: 5 * time.Millisecond}, 5 * time.Millisecond},
		{"Hello", withoutDelay, 0},
		{"/slow", withoutDelay, 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			outcome, text := pumped(t.Context(), requestFor(test.content), test.options)
			want := time.Duration(len(strings.Fields(text))) * test.each
			if took := time.Since(began); took != want || outcome.State != stream.Completed {
				t.Errorf("%s with the delay %v: %s after %v, want completed after %v",
					test.content, test.options.Delay, outcome.State, took, want)
			}
		})
	}
}

func TestWords_ReplyHasRequestedNumberOfWords(t *testing.T) {
	own := len(strings.Fields(greeting))
	for content, want := range map[string]int{
		"/words 500": 500, "/words 1": 1, "  /words  41 please": 41, "/words": 500, "/words many": 500, "/words -1": 500, "/words 999999999": maxWords,
	} {
		outcome, text := pumped(t.Context(), requestFor(content), withoutDelay)
		if got := len(strings.Fields(text)) - own; got != want || outcome.Result.FinishReason != "stop" {
			t.Errorf("%s: the reply has %d words, want %d; outcome %+v", content, got, want, outcome)
		}
	}
}

func TestMaxTokens_LimitsNumberOfWords(t *testing.T) {
	request := requestFor("Hello")
	_, whole := pumped(t.Context(), request, withoutDelay)
	n := len(strings.Fields(whole))
	for limit, want := range map[int]int{1: 1, 64: 64, n - 1: n - 1, n: n, n + 1: n} {
		request.MaxTokens = limit
		outcome, text := pumped(t.Context(), request, withoutDelay)
		reason := "stop"
		if limit < n {
			reason = "length"
		}
		if got := len(strings.Fields(text)); got != want || outcome.Result.FinishReason != reason || !strings.HasPrefix(whole, text) {
			t.Errorf("limit %d of %d words: the reply has %d words, want %d; outcome %+v", limit, n, got, want, outcome)
		}
	}
}

func TestFail_ReplyFailsAfterSomeText(t *testing.T) {
	outcome, text := pumped(t.Context(), requestFor("/fail"), withoutDelay)
	if outcome.State != stream.Failed || outcome.Err.Code != stream.CodeProviderError || !strings.HasSuffix(text, "in the middle of a") {
		t.Errorf("the outcome is %+v, the text is %q; want provider_error after some text", outcome, text)
	}
}

func TestStall_ReplyTimesOutAfterSomeText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		outcome, text := pumped(t.Context(), requestFor("/stall"), withoutDelay)
		if outcome.State != stream.Failed || outcome.Err.Code != stream.CodeProviderTimeout || time.Since(began) != time.Minute || text == "" {
			t.Errorf("the outcome is %+v after %v, the text is %q; want provider_timeout after 1 min",
				outcome, time.Since(began), text)
		}
	})
}

func TestEmpty_FailsWithoutText(t *testing.T) {
	outcome, text := pumped(t.Context(), requestFor("/empty"), withoutDelay)
	if outcome.State != stream.Failed || outcome.Err.Code != stream.CodeEmptyReply || text != "" {
		t.Errorf("the outcome is %+v, the text is %q; want empty_reply", outcome, text)
	}
}

func TestCancel_EndsReplyAtOnce(t *testing.T) {
	for content, options := range map[string]Options{"Hello": {Delay: time.Second}, "/stall": withoutDelay} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3500*time.Millisecond, func() { cancel(stream.ErrCancelled) })
			began := time.Now()
			outcome, _ := pumped(ctx, requestFor(content), options)
			if took := time.Since(began); outcome.State != stream.Cancelled || took != 3500*time.Millisecond {
				t.Errorf("%s: the reply is %s after %v, want cancelled after 3.5 s", content, outcome.State, took)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	if _, err := New(withoutDelay).Generate(ctx, requestFor("/words 1000"), func([]byte) { n++ }); err != context.Canceled || n != 0 {
		t.Errorf("with an ended context: got %v and %d words, want %v and no words", err, n, context.Canceled)
	}
}

func TestGenerate_WritesOneWordAtATime(t *testing.T) {
	_, whole := pumped(t.Context(), requestFor("Grüße"), withoutDelay)
	var joined strings.Builder
	_, err := New(withoutDelay).Generate(t.Context(), requestFor("Grüße"), func(delta []byte) {
		if !utf8.Valid(delta) || len(strings.Fields(string(delta))) != 1 {
			t.Errorf("Generate wrote %q, want one word", delta)
		}
		joined.Write(delta)
	})
	if err != nil || joined.String() != whole {
		t.Errorf("got %v and the text %q, want %q", err, joined.String(), whole)
	}
}

func TestSummary_QuotesEachMessage(t *testing.T) {
	request := requestFor(`{"summary":"(simulated) user: hi;"}
{"role":"assistant","content":"one two three four five six seven eight nine"}
no JSON
{"role":"user","content":"/fail"}
`)
	request.Summary = true
	outcome, text := pumped(t.Context(), request, withoutDelay)
	if want := "(simulated) user: hi; assistant: one two three four five six seven eight; user: /fail;"; text != want || outcome.State != stream.Completed {
		t.Errorf("the summary is %q, %s; want %q, completed", text, outcome.State, want)
	}
	request.MaxTokens = 3
	if _, text = pumped(t.Context(), request, withoutDelay); len(strings.Fields(text)) != 3 {
		t.Errorf("with MaxTokens 3, the summary is %q, want three words", text)
	}
}
