package prompt

import (
	"math"

	"parley/conversation/window"
	"parley/stream"
)

// Sized is a model that knows the size of its context, and how its tokenizer differs from ours. It learns both from the requests
// (see package models). All methods may be called from any goroutine.
type Sized interface {
	ContextTokens() int                                  // in the provider's tokens; 0 if unknown
	Scale() float64                                      // the provider's tokens for one of ours
	ObservePrompt(account string, estimated, actual int) // the sizes of an account's prompt in our tokens and in the provider's
	ObserveContext(tokens int)                           // the size of the context, in the provider's tokens
}

// Limit is what is known about the size of a model's context. The zero value means that nothing is known.
type Limit struct {
	ContextTokens int     // in the provider's tokens; 0 if unknown
	Scale         float64 // the provider's tokens for one of ours; 0 means 1
	// Reasons means that the model reasons before it writes. Its requests may use ReasoningRoom tokens more.
	Reasons bool

	refused bool // whether the limit comes from a refusal of this turn's prompt
}

// ReasoningRoom is the number of tokens that a model may use for its reasoning, beside the reply room. Reasoning is not stored, so it
// takes no room of the window. Most models need less. The text still has only the reply room ([Fit.TextRoom]). A session's
// maxOutputTokens replace the reply room and ReasoningRoom.
const ReasoningRoom = 8192

// minWindow is the smallest window for which prompts are planned, in our tokens. It is also the smallest maxTokens of a session.
const minWindow = 64

// LimitOf returns what is known about the context of a model.
func LimitOf(model stream.Model) Limit {
	if m, ok := model.(Sized); ok {
		return Limit{ContextTokens: m.ContextTokens(), Scale: m.Scale()}
	}
	return Limit{}
}

// TooLong reports whether the provider refused a request as too long for the model's context. The reply then has no text.
func TooLong(outcome stream.Outcome) bool {
	return outcome.Err != nil && outcome.Err.Code == stream.CodeContextTooLong
}

// Observe tells a model the sizes of an account's request that has ended, if the provider gave them. estimated is the size of the
// prompt in our tokens.
func Observe(model stream.Model, account string, estimated int, outcome stream.Outcome) {
	m, ok := model.(Sized)
	if !ok || estimated <= 0 {
		return
	}
	actual := 0
	if outcome.Result.Usage != nil {
		actual = outcome.Result.Usage.Prompt
	}
	if TooLong(outcome) {
		actual = outcome.Err.PromptTokens
		if tokens := outcome.Err.ContextTokens; tokens > 0 {
			m.ObserveContext(tokens)
		}
	}
	if actual > 0 {
		m.ObservePrompt(account, estimated, actual)
	}
}

func (l Limit) scale() float64 {
	if l.Scale <= 0 {
		return 1
	}
	return l.Scale
}

// Tokens returns the size of the context in our tokens; 0 if it is unknown. It is a multiple of 4, so that its quarter, the reply
// room, is never rounded up.
func (l Limit) Tokens() int {
	if l.ContextTokens == 0 {
		return 0
	}
	return max(int(float64(l.ContextTokens)/l.scale())&^3, minWindow)
}

// providers returns the number of the provider's tokens for a number of our tokens, rounded up.
func (l Limit) providers(tokens int) int { return int(math.Ceil(float64(tokens) * l.scale())) }

// Size returns the window for a session whose own window is z: the smaller of the two.
func (l Limit) Size(z window.Size) window.Size {
	if tokens := l.Tokens(); tokens > 0 && tokens < z.MaxTokens {
		z.MaxTokens = tokens
	}
	return z
}

// reply returns the limit of a reply in the provider's tokens. z is the window, and prompt the size of the prompt in our tokens.
func (l Limit) reply(z window.Size, prompt int) int {
	tokens := int(float64(z.ReplyRoom()) * l.scale())
	switch {
	case z.Reply > 0: // configured, in the provider's tokens
		tokens = z.Reply
	case z.MaxTokens == l.Tokens() && z.ReplyRoom() < window.MaxReplyRoom:
		tokens = l.ContextTokens / 4
	}
	if z.Reply == 0 && l.Reasons {
		tokens += ReasoningRoom
	}
	if l.ContextTokens > 0 {
		tokens = min(tokens, l.ContextTokens-l.providers(prompt))
	}
	return max(tokens, 1)
}

// Summary returns the limit of a summary in the provider's tokens. room is the limit in our tokens.
func (l Limit) Summary(room int) int {
	tokens := l.providers(room)
	if l.Reasons {
		tokens += ReasoningRoom
	}
	return tokens
}

// Refused returns a smaller limit, after the provider refused a prompt as too long. f planned the prompt. It takes the sizes in the
// refusal. If they do not explain it, or are missing, the limit becomes a quarter: a turn has only two attempts more.
func (l Limit) Refused(f *Fit, refusal *stream.ModelError) Limit {
	planned := f.Size().MaxTokens
	l.refused = true
	if refusal.ContextTokens > 0 {
		l.ContextTokens = refusal.ContextTokens
	}
	if estimate := f.Result.PromptTokens; refusal.PromptTokens > 0 && estimate > 0 {
		l.Scale = max(l.scale(), min(float64(refusal.PromptTokens)/float64(estimate), maxScale))
	}
	if tokens := l.Tokens(); tokens > 0 && tokens < planned {
		return l
	}
	if l.ContextTokens == 0 {
		l.ContextTokens = l.providers(planned)
	}
	l.Scale = 4 * float64(l.ContextTokens) / float64(planned)
	return l
}

// maxScale bounds what one refusal can teach: texts in scripts that our vocabulary knows badly take at most so many times our count.
const maxScale = 16
