package conversation

import (
	"time"

	"parley/conversation/usage"
	"parley/stream"
)

// UsageOfSession returns what the creation of a session counts.
func UsageOfSession() usage.Bucket { return usage.Bucket{Sessions: 1} }

// UsageOfTurnStart returns what a turn counts when it begins, with a message of that role: in the hour of the message.
// How much later that is than the session's last activity counts as SessionTime besides, in the hour of the session's
// creation.
func UsageOfTurnStart(role Role) usage.Bucket {
	b := usage.Bucket{AssistantMessages: 1}
	if role == System {
		b.SystemMessages = 1
	} else {
		b.UserMessages = 1
	}
	return b
}

// UsageOfTurnEnd returns what a turn counts when it ends with a reply: in the hour of the end.
func UsageOfTurnEnd(reply *Message, timing Timing) usage.Bucket {
	var b usage.Bucket
	if u := reply.Usage; u != nil {
		b.PromptTokens, b.CompletionTokens = int64(u.Prompt), int64(u.Completion)
	}
	switch reply.Status {
	case stream.Completed:
		b.Completed = 1
	case stream.Cancelled:
		b.Cancelled = 1
	case stream.Failed:
		b.Failed = 1
	case stream.Interrupted:
		b.Interrupted = 1
	}
	observe(&b.FirstToken, timing.FirstToken)
	observe(&b.Duration, timing.Duration)
	return b
}

// UsageOfSummary returns what a summary counts: in the hour in which it is stored.
func UsageOfSummary(u Usage) usage.Bucket {
	return usage.Bucket{PromptTokens: int64(u.Prompt), CompletionTokens: int64(u.Completion)}
}

// observe counts a duration that is known.
func observe(h *usage.Histogram, d time.Duration) {
	if d > 0 {
		h.Observe(int64((d + time.Millisecond - 1) / time.Millisecond))
	}
}
