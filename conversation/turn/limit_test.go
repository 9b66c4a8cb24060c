package turn_test

import (
	"context"
	"strings"
	"testing"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/stream"
)

// TestSend_ModelNeverEnds_CutAtLimitWithUsage runs a model that ignores its limit: a window of 64 tokens has a reply
// room of 16 tokens, which are 4,096 bytes. In one case, the model reports no usage. In the other case, it reports the
// usage so far.
func TestSend_ModelNeverEnds_CutAtLimitWithUsage(t *testing.T) {
	const limit = 4096
	for name, test := range map[string]struct{ sent, want *conversation.Usage }{
		"no usage": {nil, &conversation.Usage{Prompt: 9, Completion: limit / 4, Total: 9 + limit/4, Estimated: true}},
		"usage":    {&conversation.Usage{Prompt: 7, Completion: 5000}, &conversation.Usage{Prompt: 7, Completion: 5000, Total: 5007}},
	} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan error, 1)
			n := conversationtest.Start(t, conversationtest.ModelFunc(func(ctx context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
				for ctx.Err() == nil {
					write([]byte("for ever "))
				}
				closed <- context.Cause(ctx)
				result := stream.Result{}
				if test.sent != nil {
					result.Usage = &stream.Usage{Prompt: test.sent.Prompt, Completion: test.sent.Completion}
				}
				return result, ctx.Err()
			}))
			session := n.NewSession(conversation.ContextConfig{MaxTokens: 64, CompressionEnabled: true, RetentionPolicy: conversation.FIFO})
			reply := n.SendAndWait(t.Context(), conversationtest.Message(session, "hello"))
			wantReply(t, "the reply", reply, stream.Completed, strings.Repeat("for ever ", limit)[:limit])
			if reply.FinishReason != stream.FinishLength || *reply.Usage != *test.want {
				t.Errorf("finish reason %q and usage %+v, want length and %+v", reply.FinishReason, *reply.Usage, *test.want)
			}
			if cause := <-closed; cause != stream.ErrFull {
				t.Errorf("the request was closed because of %v, want %v", cause, stream.ErrFull)
			}
			if used := n.Get(session).TokenUsage; used.Total != test.want.Total {
				t.Errorf("the session has the usage %+v, want %d tokens in all", used, test.want.Total)
			}
		})
	}
}
