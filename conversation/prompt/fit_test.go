package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// count is the token counter of the tests: one token for each four bytes, rounded up.
func count(text string) int { return (len(text) + 3) / 4 }

func ofTokens(n int) string { return strings.Repeat("four", n) }

// session builds the Context that a store returns for a session.
type session struct {
	conversation.Context
	all []conversation.Message
}

func newSession(maxTokens int, policy conversation.RetentionPolicy) *session {
	return &session{Context: conversation.Context{Session: conversation.Session{Context: conversation.ContextConfig{
		MaxTokens: maxTokens, CompressionEnabled: true, RetentionPolicy: policy,
	}}}}
}

func (s *session) add(role conversation.Role, text string, metadata string) *conversation.Message {
	m := conversation.Message{ID: fmt.Sprintf("msg_%04d", len(s.all)), Role: role, Content: text, Tokens: count(text), Status: stream.Completed}
	if metadata != "" {
		m.Metadata = json.RawMessage(metadata)
	}
	s.all = append(s.all, m)
	return &s.all[len(s.all)-1]
}

func (s *session) exchange(text, reply string) {
	s.add(conversation.User, text, "")
	s.add(conversation.Assistant, reply, "").Terms = window.TermsOf(text, reply)
}

// fit returns a planned Fit of a message. Its Context has the newest n messages and an index of all messages; with the policy fifo, of
// all system messages.
func (s *session) fit(text string, n int) *Fit {
	c := s.Context
	c.Session.MessageCount = len(s.all)
	for i := range s.all {
		c.Session.HistoryTokens += s.all[i].TokensInPrompt()
		if policy := c.Session.Context.RetentionPolicy; policy != conversation.FIFO || s.all[i].Role == conversation.System {
			c.Index = append(c.Index, conversation.Index(&s.all[i], policy))
		}
	}
	c.History = s.all[max(0, len(s.all)-n):]
	f := New(c, conversation.Message{ID: fmt.Sprintf("msg_%04d", len(s.all)), Role: conversation.User, Content: text, Tokens: count(text)})
	f.Compare(nil)
	f.Plan()
	return f
}

// firstWords returns the first word of each message of a request.
func firstWords(r stream.Request) string {
	var all []string
	for _, m := range r.Messages {
		all = append(all, strings.Fields(m.Content)[0])
	}
	return strings.Join(all, " ")
}

// A window of 100 tokens keeps 25 for the reply and 3 for the prompt's overhead. That leaves 72 for messages, each with
// an overhead of 4.
func TestFit_FIFO_OldestDropped(t *testing.T) {
	s := newSession(100, conversation.FIFO)
	s.exchange("one "+ofTokens(10), "two "+ofTokens(10)) // 15 tokens each
	s.exchange("3333"+ofTokens(10), "4444"+ofTokens(10))
	f := s.fit("5555"+ofTokens(30), 4) // 35 tokens with overhead; 65 tokens with the second exchange
	if got := firstWords(f.Request()); !strings.HasPrefix(got, "3333") || len(f.Request().Messages) != 3 || f.Request().MaxTokens != 25 {
		t.Errorf("the model is asked %+v", f.Request())
	}
	want := conversation.ContextReport{
		Policy: conversation.FIFO, PromptTokens: 68, MaxTokens: 100, Kept: conversation.MessageRange{Count: 3, First: "msg_0002", Last: "msg_0004"},
		Dropped: conversation.MessageRange{Count: 2, First: "msg_0000", Last: "msg_0001"},
	}
	if got := f.Report(); got != want {
		t.Errorf("the report is %+v, want %+v", got, want)
	}
	if dropped, ok := f.Dropped(); !ok || dropped != (stream.SummaryStats{Dropped: 2, TokensBefore: 30}) {
		t.Errorf("viewers are shown %+v", dropped)
	}
	if dropped, ok := s.fit("x", 4).Dropped(); ok {
		t.Errorf("everything fits, but viewers see %+v", dropped)
	}
}

// A window of 300 tokens is too small for a summary. It has 222 for messages, and each exchange takes 60.
func TestFit_EachPolicy_SendsPreferredMessages(t *testing.T) {
	for policy, want := range map[conversation.RetentionPolicy]string{
		conversation.FIFO:     "rules weather to-weather dinner to-dinner music to-music who", // an old system message is kept alone
		conversation.Priority: "rules to-rules passwords to-passwords music to-music who",
		conversation.Semantic: "rules to-rules lighthouse to-lighthouse music to-music who",
	} {
		t.Run(string(policy), func(t *testing.T) {
			s := newSession(300, policy)
			for _, x := range []struct {
				words, priority string
				role            conversation.Role
			}{
				{"rules here: nobody reads them anyway", "", conversation.System},
				{"lighthouse keepers warn the ships at night", "", conversation.User},
				{"passwords are kept in the red drawer", `{"priority":"high"}`, conversation.User},
				{"weather is nice today so they say", `{"priority":"low"}`, conversation.User},
				{"dinner is at eight in the evening", "", conversation.User},
				{"music is played by a small orchestra", "", conversation.User},
			} {
				first, _, _ := strings.Cut(x.words, " ")
				s.add(x.role, x.words+strings.Repeat(" ", 80-len(x.words)), x.priority)
				reply := "to-" + first + strings.Repeat(" ", 125-len(first))
				s.add(conversation.Assistant, reply, "").Terms = window.TermsOf(x.words, reply)
			}
			f := s.fit("who warns the ships near a lighthouse?", 7)
			places := f.Sent()
			missing := f.Missing(places)
			var found []conversation.Message
			for _, m := range s.all {
				if slices.Contains(missing, m.ID) {
					found = append(found, m)
				}
			}
			if len(missing) == 0 || missing[0] != s.all[0].ID {
				t.Errorf("the texts of %q are missing, want that of the first message among them", missing)
			}
			if len(found) > 0 && f.Fill(places, found[1:]) {
				t.Error("Fill returned true, but one text is missing")
			}
			if !f.Fill(places, found) || len(f.Missing(places)) > 0 {
				t.Errorf("the texts of %q are still missing", f.Missing(places))
			}
			if got := firstWords(f.Request()); got != want {
				t.Errorf("the model is asked %q, want %q", got, want)
			}
			if got := f.Report().Similarity; (got == conversation.ByWords) != (policy == conversation.Semantic) {
				t.Errorf("messages are compared by %q", got)
			}
			if f := f.HistoryOnly(); len(f.Messages) != 7 {
				t.Errorf("with the history only, there are %d messages", len(f.Messages))
			}
		})
	}
}

func TestFit_Embeddings_CloserExchangeScoresHigher(t *testing.T) {
	s := newSession(200, conversation.Semantic)
	for i := range 4 {
		s.exchange(fmt.Sprintf("w%d%s", i, ofTokens(10)), fmt.Sprintf("r%d%s", i, ofTokens(10)))
	}
	f := s.fit("asked"+ofTokens(10), 2)
	vector := func(numbers ...float32) window.Vector {
		v, err := window.VectorOf("model", numbers)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	f.Index[1].Vector, f.Index[3].Vector = vector(1, 0), vector(0, 1) // the vectors of exchanges 0 and 1
	f.Compare(vector(1, 0))
	if f.Messages[1].Similarity <= f.Messages[3].Similarity || f.Report().Similarity != conversation.ByEmbeddings {
		t.Errorf("the similarities are %v and %v, by %v", f.Messages[1].Similarity, f.Messages[3].Similarity, f.Report().Similarity)
	}
	for n, want := range map[int]int{0: 0, 1: 1, 5: 2} {
		exchanges := f.Unembedded("model", n)
		if len(exchanges) != want {
			t.Errorf("%d exchanges have no embedding, with a maximum of %d", len(exchanges), n)
		}
		if want > 0 && (len(exchanges[0]) != 2 || exchanges[0][1].ID != "msg_0007" || exchanges[0][0].Indexed != nil) {
			t.Errorf("the newest exchange without an embedding is %+v", exchanges[0])
		}
	}
	if f.Text() != "asked"+ofTokens(10) || !f.Compares() {
		t.Error("Text or Compares is wrong")
	}
}

func TestFit_Summary_SentAndCounted(t *testing.T) {
	s := newSession(1000, conversation.FIFO)
	for i := range 9 {
		s.exchange(fmt.Sprintf("m%d %s", i, ofTokens(45)), "reply"+ofTokens(44)+"xxx") // 100 tokens for each exchange
	}
	f := s.fit(ofTokens(46), 14)
	if !f.Summarises() || !f.Overdue() || !f.LacksEarlier() {
		t.Errorf("without a summary, the result is %+v", f.Result)
	}
	f.Adopt(conversation.Summary{Text: "heading summary", Tokens: 5, Last: "msg_0007", Count: 8})
	f.Plan()
	if f.LacksEarlier() || f.Overdue() || !f.Report().Summarised || !strings.HasPrefix(firstWords(f.Request()), "heading m3") {
		t.Errorf("with a summary the model is asked %q", firstWords(f.Request()))
	}
	if got := f.Report(); got.InSummary.Count != 6 || got.Kept.Count != 13 || got.Dropped.Count != 0 {
		t.Errorf("the report is %+v", got)
	}
	if got, err := f.Preview(); err != nil || got.Summary != "heading summary" || len(got.Messages) != len(f.Messages)+1 {
		t.Errorf("the preview is %+v %v", got, err)
	}
	before := len(f.Messages)
	f.Add(&conversation.Message{ID: "msg_0099", Role: conversation.User, Content: "new", Tokens: 1})
	if len(f.Messages) != before+1 || f.Messages[before].Content != "new" {
		t.Errorf("Add appended %+v", f.Messages[before:])
	}
	small := newSession(64, conversation.FIFO)
	if small.fit("x", 0).Summarises() {
		t.Error("a window of 64 tokens has a summary")
	}
}

func TestAdopt_OldOrClearedSummary_Ignored(t *testing.T) {
	for _, test := range []struct {
		name, has, cleared, offered string
		want                        bool
	}{
		{"the first", "", "", "msg_1", true},
		{"a newer one", "msg_1", "", "msg_2", true},
		{"the same", "msg_1", "", "msg_1", false},
		{"an older one", "msg_2", "", "msg_1", false},
		{"none", "msg_2", "", "", false},
		{"of cleared messages", "", "msg_3", "msg_2", false},
		{"of messages after the clear", "", "msg_3", "msg_4", true},
	} {
		f := &Fit{Context: conversation.Context{Session: conversation.Session{Cleared: test.cleared}, Summary: conversation.Summary{Last: test.has}}}
		f.Adopt(conversation.Summary{Last: test.offered})
		if got := f.Summary.Last != test.has; got != test.want {
			t.Errorf("%s: adopted: %t", test.name, got)
		}
	}
}

func TestPreview_ListsDecisionOnEachMessage(t *testing.T) {
	s := newSession(100, conversation.FIFO)
	s.exchange("one "+ofTokens(10), "two "+ofTokens(10)) // 15 tokens each
	s.exchange("3333", "")                               // 5 tokens, and a reply without text
	s.exchange("5555"+ofTokens(5), "6666"+ofTokens(5))   // 10 tokens each
	for _, tokens := range []int{1, 10, 13, 14, 30, 60, 68} {
		got, err := s.fit(ofTokens(tokens), len(s.all)).Preview()
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		var decisions []string
		for _, m := range got.Messages {
			decisions = append(decisions, m.Decision)
			if m.Decision == "kept" {
				kept++
			}
		}
		last := got.Messages[len(got.Messages)-1]
		if last.ID != "" || last.Role != conversation.User || last.Tokens != tokens+4 || len(got.Messages) != 7 || got.Context.Kept.Count != kept {
			t.Errorf("%d tokens: the preview is %+v", tokens, got)
		}
		if tokens == 1 && !slices.Contains(decisions, "skipped") || tokens == 60 && !slices.Contains(decisions, "dropped") {
			t.Errorf("%d tokens: the decisions are %v", tokens, decisions)
		}
	}
	_, err := newSession(100, conversation.FIFO).fit(ofTokens(69), 0).Preview()
	if overflow, ok := errors.AsType[*conversation.OverflowError](err); !ok || *overflow != (conversation.OverflowError{CurrentTokens: 69 + 4 + 3 + 25, MaxTokens: 100}) {
		t.Errorf("a message that is too large: %v", err)
	}
}

// Each policy drops most messages of the 200 turns.
func TestFit_Instructions_SentFirstInEachOf200Turns(t *testing.T) {
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		s := newSession(200, policy)
		s.Session.Instructions, s.Session.InstructionTokens = "Pirate", 2
		temperature := 0.5
		s.Session.Model = conversation.ModelConfig{MaxOutputTokens: 80, Temperature: &temperature, Stop: []string{"END"}}
		for range 200 {
			f := s.fit("now "+ofTokens(5), 10)
			r := f.Request()
			if r.Messages[0] != (stream.PromptMessage{Role: "system", Content: "Pirate"}) {
				t.Fatalf("%s: after %d messages, the prompt begins with %+v", policy, len(s.all), r.Messages[0])
			}
			if r.MaxTokens != 80 || *r.Temperature != 0.5 || len(r.Stop) != 1 {
				t.Fatalf("%s: the request is %+v", policy, r)
			}
			report := f.Report()
			if n := report.Kept.Count + report.Dropped.Count; n != len(s.all)+1 {
				t.Fatalf("%s: the report counts %d of %d messages", policy, n, len(s.all)+1)
			}
			s.exchange("asked "+ofTokens(10), "told "+ofTokens(10))
		}
		p, err := s.fit("now", 10).Preview()
		if err != nil || p.Context.Dropped.Count < 300 {
			t.Errorf("%s: the preview drops %d messages: %v", policy, p.Context.Dropped.Count, err)
		}
	}
}

// The report must count each message once. The prompt must fit into the window and have the size that the report
// states.
func TestFit_AnySession_ReportExactAndPromptFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSession(rapid.IntRange(64, 2000).Draw(t, "window"), rapid.SampledFrom([]conversation.RetentionPolicy{
			conversation.FIFO, conversation.Priority, conversation.Semantic}).Draw(t, "policy"))
		if room := s.Session.Window().Budget() - window.MinBudget - window.MessageOverhead; rapid.Bool().Draw(t, "has instructions") {
			s.Session.InstructionTokens = rapid.IntRange(1, room).Draw(t, "instructions")
			s.Session.Instructions = ofTokens(s.Session.InstructionTokens)
		}
		for range rapid.IntRange(0, 12).Draw(t, "exchanges") {
			s.exchange(ofTokens(rapid.IntRange(1, 60).Draw(t, "message")), ofTokens(rapid.IntRange(0, 60).Draw(t, "reply")))
		}
		f := s.fit(ofTokens(rapid.IntRange(1, 40).Draw(t, "new")), rapid.IntRange(0, len(s.all)).Draw(t, "returned"))
		if f.Result.Overflow > 0 {
			return
		}
		r := f.Report()
		if n := r.Kept.Count + r.InSummary.Count + r.Dropped.Count + r.Skipped.Count; n != len(s.all)+1 {
			t.Fatalf("%d of %d messages are in the report %+v", n, len(s.all)+1, r)
		}
		if limit := f.Session.Window().Prompt(math.MaxInt); r.PromptTokens > limit {
			t.Fatalf("the prompt has %d tokens of %d", r.PromptTokens, limit)
		}
		if !f.Fill(f.Sent(), slices.DeleteFunc(slices.Clone(s.all), func(m conversation.Message) bool {
			return !slices.Contains(f.Missing(f.Sent()), m.ID)
		})) {
			t.Fatalf("texts are missing: %v", f.Missing(f.Sent()))
		}
		tokens := window.PromptOverhead
		for _, m := range f.Request().Messages {
			tokens += count(m.Content) + window.MessageOverhead
		}
		if tokens != r.PromptTokens {
			t.Fatalf("the model is asked %d tokens, the report says %d", tokens, r.PromptTokens)
		}
	})
}

// The messages of the history have no metadata, like those that a store returns.
func TestHistoryOnly_NoMetadata_PriorityFromIndex(t *testing.T) {
	s := newSession(100, conversation.Priority)
	for _, metadata := range []string{`{"priority":9}`, `{"priority":"high"}`, ""} {
		s.add(conversation.User, ofTokens(20), metadata)
		s.add(conversation.Assistant, ofTokens(20), "")
	}
	f := s.fit("hello", 4)
	for i := range f.History {
		f.History[i].Metadata = nil
	}
	f = f.HistoryOnly()
	f.Plan()
	if f.Messages[0].Priority != window.High || !slices.Equal(f.Sent(), []int{0, 1}) {
		t.Errorf("the plan sends the messages %v, want the two of high priority", f.Sent())
	}
	if empty := s.fit("hello", 0).HistoryOnly(); len(empty.Messages) != 0 {
		t.Errorf("without a history, there are %d messages", len(empty.Messages))
	}
}
