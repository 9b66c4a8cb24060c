package turn_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
	"parley/stream/models"
)

// smallModel is a server with a context of its own size. Its tokenizer counts several tokens for one of ours. It refuses a request that
// does not fit, as llama-server and vLLM do.
type smallModel struct {
	context, factor int
	strict          bool // the limit of the reply must fit, too
	silent          bool // a refusal has no sizes
	reasons         int  // hidden tokens of each reply

	mu                sync.Mutex
	requests, refused int      // guarded by mu
	prompts           []string // guarded by mu; the texts of the last prompt
	written           int      // guarded by mu; tokens of all replies
}

func (*smallModel) Name() string { return "small" }

// Generate implements stream.Model. A reply is as long as its limit allows.
func (m *smallModel) Generate(_ context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	prompt, prompts := 3, []string(nil)
	for _, p := range request.Messages {
		prompt += m.factor * (conversationtest.Count(p.Content) + 4)
		prompts = append(prompts, p.Content)
	}
	m.requests++
	needed := prompt + 1
	if m.strict {
		needed = prompt + request.MaxTokens
	}
	if needed > m.context {
		m.refused++
		err := &stream.ModelError{Code: stream.CodeContextTooLong, Message: "too long"}
		if !m.silent {
			err.PromptTokens, err.ContextTokens = prompt, m.context
		}
		return stream.Result{}, err
	}
	length := min(request.MaxTokens, m.context-prompt)
	if m.reasons > 0 {
		length = 40 // a short answer after long reasoning
		request.Reasoning()
	}
	if request.Summary {
		length = min(length, 40)
	} else {
		m.prompts, m.written = prompts, m.written+length
	}
	write([]byte(conversationtest.OfTokens(max(1, length/m.factor), "")))
	usage := &stream.Usage{Prompt: prompt, Completion: length + m.reasons, Reasoning: m.reasons}
	return stream.Result{FinishReason: "length", Usage: usage, Reasoned: m.reasons > 0, ReasonedApart: m.reasons > 0}, nil
}

var policies = []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic}

func configOf(policy conversation.RetentionPolicy) conversation.ContextConfig {
	config := conversation.DefaultContextConfig
	config.RetentionPolicy = policy
	return config
}

// The model's context is a quarter of the session's window, and its tokenizer counts twice as many tokens as ours.
func TestSend_ModelSmallerThanSession_EachSendAnswered(t *testing.T) {
	const contextTokens, sends = 1024, 170 // 1,020 in all
	for _, policy := range policies {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, strict %v", policy, strict), func(t *testing.T) {
				t.Parallel() // the sends wait for the disk
				model := &smallModel{context: contextTokens, factor: 2, strict: strict}
				n := conversationtest.Start(t, model)
				session := n.NewSession(configOf(policy))
				for i := range sends {
					r := n.SendAndWait(t.Context(), conversationtest.Message(session, conversationtest.OfTokens(5+i%30, fmt.Sprint("question ", i))))
					if r.Err != nil || r.Status != stream.Completed {
						t.Fatalf("send %d: %s, %v, %+v", i, r.Status, r.Err, r.Error)
					}
					if size := r.Context.Window(); i > 20 && (size > contextTokens/2+8 || r.Context.ModelTokens != size) {
						t.Fatalf("send %d: the window is %d: %+v", i, size, r.Context)
					}
				}
				model.mu.Lock()
				defer model.mu.Unlock()
				t.Logf("%d requests, %d of them refused; a reply has %d tokens on average", model.requests, model.refused, model.written/sends)
				if model.written < sends*contextTokens/4 {
					t.Errorf("the replies have %d tokens on average, want a quarter of %d", model.written/sends, contextTokens)
				}
				if model.refused > 10 {
					t.Errorf("%d of %d requests were refused", model.refused, model.requests)
				}
			})
		}
	}
}

func TestSend_MessageLargerThanModel_OverflowOfThatSendOnly(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("refusal without sizes %v", silent), func(t *testing.T) {
			model := &smallModel{context: 1024, factor: 2, silent: silent}
			n := conversationtest.Start(t, model)
			session := n.NewSession()
			n.Ask(session, "hello")
			before := n.Get(session).HistoryTokens
			for range 3 {
				r := n.SendAndWait(t.Context(), conversationtest.Message(session, conversationtest.OfTokens(2000, "long")))
				overflow := r.Overflow()
				if r.Err != nil || r.Status != stream.Failed || overflow == nil || overflow.CurrentTokens <= overflow.MaxTokens || r.Usage.Total != 0 {
					t.Fatalf("the reply is %s, %v, %+v, %+v", r.Status, r.Err, r.Error, r.Context)
				}
				if s := n.Get(session); s.HistoryTokens != before {
					t.Errorf("the history has %d tokens, want %d", s.HistoryTokens, before)
				}
			}
			n.Ask(session, "hello again")
			if all := n.All(session); len(all) != 10 || strings.Contains(strings.Join(model.prompts, ""), "long") {
				t.Errorf("the history has %d messages, and the last prompt is %.80q", len(all), model.prompts)
			}
		})
	}
}

// Other prompts have shown that the model counts 7 tokens for one of ours. That may be wrong for this one.
func TestSend_OnlyScaleMakesOverflow_ProviderDecides(t *testing.T) {
	for factor, answered := range map[int]bool{1: true, 7: false} {
		t.Run(fmt.Sprintf("the model counts %d tokens for one", factor), func(t *testing.T) {
			model := &smallModel{context: 1024, factor: factor}
			learned := models.New(model.Name(), model, 0)
			learned.ObserveContext(1024)
			learned.ObservePrompt("other", 1000, 7000)
			n := conversationtest.Start(t, model, func(o *service.Options) { o.Models = models.Of(learned) })
			session := n.NewSession()
			r := n.SendAndWait(t.Context(), conversationtest.Message(session, conversationtest.OfTokens(300, "long")))
			if r.Err != nil || (r.Status == stream.Completed) != answered || (r.Overflow() == nil) != answered {
				t.Errorf("the reply is %s, %v, %+v", r.Status, r.Err, r.Error)
			}
			if model.requests != 1 || model.refused != 1-map[bool]int{true: 1}[answered] {
				t.Errorf("%d of %d requests were refused", model.refused, model.requests)
			}
		})
	}
}

func TestSend_RefusalsWithoutSizes_EachSendAnswered(t *testing.T) {
	model := &smallModel{context: 1024, factor: 2, silent: true}
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	for i := range 40 {
		r := n.SendAndWait(t.Context(), conversationtest.Message(session, conversationtest.OfTokens(20, fmt.Sprint("question ", i))))
		if r.Err != nil || r.Status != stream.Completed {
			t.Fatalf("send %d: %s, %v, %+v", i, r.Status, r.Err, r.Error)
		}
	}
	if model.refused == 0 {
		t.Error("no request was refused")
	}
}

func TestSend_NoCompression_SmallerModelGivesOverflow(t *testing.T) {
	model := &smallModel{context: 1024, factor: 1}
	n := conversationtest.Start(t, model)
	session := n.NewSession(conversation.ContextConfig{MaxTokens: 4096, RetentionPolicy: conversation.FIFO})
	sent := 0
	for r := (conversationtest.Reply{}); ; sent++ {
		r = n.SendAndWait(t.Context(), conversationtest.Message(session, "hello"))
		if r.Status == stream.Failed {
			if r.Overflow() == nil || r.Overflow().MaxTokens > 1024+16 || sent < 1 {
				t.Fatalf("reply %d is %+v, %+v", sent, r.Error, r.Context)
			}
			break
		}
		if r.Err != nil || r.Context.Dropped.Count > 0 || sent > 20 {
			t.Fatalf("reply %d: %v, %+v", sent, r.Err, r.Context)
		}
	}
	if _, err := n.Clear(t.Context(), conversationtest.Owner, session); err != nil {
		t.Fatal(err)
	}
	n.Ask(session, "hello")
}

// Each reply takes 2,500 hidden tokens and 40 tokens of text.
func TestSend_ReasoningModel_WindowCountsTextOnly(t *testing.T) {
	model := &smallModel{context: 131072, factor: 1, reasons: 2500}
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	text := 0
	for i := range 100 {
		r := n.Ask(session, fmt.Sprint("question ", i))
		if r.Tokens != 40 || r.Usage.Reasoning != 2500 || r.Usage.Completion != 2540 || r.Usage.Total != r.Usage.Prompt+r.Usage.Completion {
			t.Fatalf("reply %d has %d tokens, and the usage %+v", i, r.Tokens, r.Usage)
		}
		text += conversationtest.Count(fmt.Sprint("question ", i)) + 40 + 2*4
		if got := n.Get(session).HistoryTokens; got != text {
			t.Fatalf("after reply %d, the history has %d tokens, want %d", i, got, text)
		}
		if full := text > 3000*4/5; !full && (r.Context.Summarised || r.Context.Dropped.Count > 0) {
			t.Fatalf("reply %d: the texts have %d tokens, but the prompt is %+v", i, text, r.Context)
		}
	}
	if model.requests > 110 {
		t.Errorf("100 turns took %d requests", model.requests)
	}
}

func TestSend_SystemMessage_InEachPromptOf200Turns(t *testing.T) {
	for _, policy := range policies {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			model := &smallModel{context: 131072, factor: 1}
			n := conversationtest.Start(t, model)
			config := configOf(policy)
			config.MaxTokens = 1024
			session := n.NewSession(config)
			persona := conversationtest.Message(session, "You are a pirate.")
			persona.Role = conversation.System
			if r := n.SendAndWait(t.Context(), persona); r.Err != nil || r.Status != stream.Completed {
				t.Fatal(r.Err, r.Error)
			}
			for i := range 200 {
				r := n.Ask(session, conversationtest.OfTokens(20, fmt.Sprint("question ", i)))
				model.mu.Lock()
				kept := strings.Contains(strings.Join(model.prompts, "|"), "You are a pirate.")
				model.mu.Unlock()
				if !kept {
					t.Fatalf("turn %d: the prompt lacks the system message: %+v", i, r.Context)
				}
			}
		})
	}
}
