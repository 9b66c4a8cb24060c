package prompt

import (
	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// Report returns the context report of the reply, according to the plan.
func (f *Fit) Report() conversation.ContextReport {
	config, r := f.Session.Context, &f.Result
	tokens := r.PromptTokens
	if r.Overflow > 0 {
		tokens = r.Overflow - f.Size().ReplyRoom()
	}
	return conversation.ContextReport{
		Policy: config.RetentionPolicy, PromptTokens: tokens, MaxTokens: config.MaxTokens, ModelTokens: f.limit.Tokens(),
		Kept: conversation.MessageRange(r.Kept), InSummary: conversation.MessageRange(r.Summarised),
		Dropped: conversation.MessageRange(r.Dropped), Skipped: conversation.MessageRange(r.Skipped),
		Summarised: r.SendSummary, Similarity: f.similarity,
	}
}

// Dropped returns the figures that viewers see for the messages that the plan drops; false if it drops none.
func (f *Fit) Dropped() (stream.SummaryStats, bool) {
	dropped := f.Result.Dropped.Count
	if dropped == 0 {
		return stream.SummaryStats{}, false
	}
	tokens, known := 0, 0
	for i, d := range f.Result.Decisions {
		if d.Verdict == window.Dropped {
			tokens += f.Messages[i].Tokens
			known++
		}
	}
	if dropped > known {
		tokens += f.earlierTokens // an upper bound: the summary may cover some of these messages
	}
	return stream.SummaryStats{Dropped: dropped, TokensBefore: tokens}, true
}

// Preview returns the context that the model would get if the message were sent now, with the decision about each
// message. It returns *conversation.OverflowError if the window cannot hold the message.
func (f *Fit) Preview() (conversation.Preview, error) {
	if f.Result.Overflow > 0 {
		return conversation.Preview{}, &conversation.OverflowError{CurrentTokens: f.Result.Overflow, MaxTokens: f.Size().MaxTokens}
	}
	preview := conversation.Preview{Context: f.Report(), Messages: make([]conversation.PreviewMessage, 0, len(f.Messages)+1)}
	if f.Result.SendSummary {
		preview.Summary = f.Summary.Text
	}
	for i, d := range f.Result.Decisions {
		m := &f.Messages[i]
		preview.Messages = append(preview.Messages, conversation.PreviewMessage{
			ID: m.ID, Role: m.Role, Tokens: m.Tokens, Decision: d.Verdict.String(), Reason: d.Reason.String(),
		})
	}
	preview.Messages = append(preview.Messages, conversation.PreviewMessage{
		Role: f.message.Role, Tokens: f.message.TokensInPrompt(), Decision: window.Kept.String(), Reason: "the new message",
	})
	return preview, nil
}
