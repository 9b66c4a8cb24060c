package history

import (
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// whole returns a history without a violation: two turns in one session, a viewer of each reply, a page, and a deleted session.
func whole() History {
	first := Message{ID: "msg_2", Role: "assistant", Status: "completed", Content: "one two ", Usage: 12}
	second := Message{ID: "msg_4", Role: "assistant", Status: "interrupted", Content: "thr", Usage: 5}
	return History{
		Sends: []Send{
			{Session: "s", Content: "a", Begun: at(1), Confirmed: at(2), Reply: "msg_2", Whole: &first},
			{Session: "s", Content: "b", Begun: at(3), Confirmed: at(4), Reply: "msg_4"},
			{Session: "gone", Content: "c", Begun: at(1), Confirmed: at(2), Reply: "msg_9"},
			{Session: "s", Content: "d", Begun: at(9)}, // never confirmed, not stored
		},
		Views: []View{
			{Viewer: "v", Session: "s", Reply: "msg_2", Pieces: []Piece{{0, "one ", at(2)}, {4, "two ", at(2)}}, Ends: []Message{first}},
			{Viewer: "v", Session: "s", Reply: "msg_4", Pieces: []Piece{{0, "three", at(4)}}, Ends: []Message{second}},
		},
		Reads: []Read{{Session: "s", Begun: at(5), Messages: []Message{
			{ID: "msg_1", Role: "user", Content: "a"}, first, {ID: "msg_3", Role: "user", Content: "b"},
			{ID: "msg_4", Role: "assistant", Status: "streaming", Content: "th"},
		}}},
		Requests: []Request{
			{What: "GET", Took: time.Second, Deadline: 2 * time.Second, Status: 200},
			{What: "POST", Took: time.Second, Deadline: 2 * time.Second, Status: 503, Code: "service_unavailable", RetryAfter: true},
			{What: "POST", Took: time.Second, Deadline: 2 * time.Second},
		},
		Removals: []Removal{{Session: "gone", At: at(6)}},
		Stored: []Session{{ID: "s", MessageCount: 4, Usage: 17, Messages: []Message{
			{ID: "msg_1", Role: "user", Content: "a"}, first, {ID: "msg_3", Role: "user", Content: "b"}, second,
		}}},
		Model: map[string]Answer{
			"a": {Text: "one two ", Whole: true, Usage: 12}, "b": {Text: "three four "}, "c": {Text: "x"},
		},
	}
}

// Each case changes a history without a violation. Check must report the broken promise. Without a change, it must
// report nothing.
func TestCheck_EachPromiseBroken_Reported(t *testing.T) {
	if found := Check(whole()); len(found) > 0 {
		t.Fatalf("violations in a history without any: %v", found)
	}
	for name, test := range map[string]struct {
		promise Promise
		change  func(*History)
	}{
		"confirmed message missing":      {Stored, func(h *History) { store(h, h.Stored[0].Messages[:2]...) }},
		"messageCount too high":          {Stored, func(h *History) { h.Stored[0].MessageCount++ }},
		"message stored twice":           {Once, func(h *History) { m := h.Stored[0].Messages; store(h, m[0], m[1], m[0], reply("msg_7", "")) }},
		"second reply for a repeat":      {Once, func(h *History) { h.Sends[1].Reply = "msg_8" }},
		"later message stored first":     {Order, func(h *History) { m := h.Stored[0].Messages; store(h, m[2], m[3], m[0], m[1]) }},
		"two messages in a row":          {Order, func(h *History) { m := h.Stored[0].Messages; store(h, m[0], m[2]) }},
		"message altered":                {Unaltered, func(h *History) { h.Stored[0].Messages[2].Content = "B" }},
		"message in another session":     {Unaltered, func(h *History) { h.Sends[0].Session = "t" }},
		"message altered on a page":      {Unaltered, func(h *History) { h.Reads[0].Messages[0].Content = "A" }},
		"reply altered":                  {Unaltered, func(h *History) { h.Stored[0].Messages[3].Content = "thR" }},
		"reply altered on a page":        {Unaltered, func(h *History) { h.Reads[0].Messages[3].Content = "xx" }},
		"reply of another message":       {Unaltered, func(h *History) { h.Sends[1].Reply = "msg_2" }},
		"completed reply cut off":        {Unaltered, func(h *History) { h.Stored[0].Messages[1].Content = "one " }},
		"viewer got other text":          {Unaltered, func(h *History) { h.Views[0].Pieces[1].Text = "TWO " }},
		"viewer got more than completed": {Unaltered, func(h *History) { h.Stored[0].Messages[3].Status = "failed" }},
		"piece twice":                    {Untorn, func(h *History) { p := h.Views[0].Pieces; h.Views[0].Pieces = append(p, p[1]) }},
		"piece missing":                  {Untorn, func(h *History) { h.Views[0].Pieces = h.Views[0].Pieces[1:] }},
		"reply without an ending":        {OneEnding, func(h *History) { h.Stored[0].Messages[3].Status = "streaming" }},
		"unknown ending":                 {OneEnding, func(h *History) { h.Stored[0].Messages[3].Status = "done" }},
		"viewer got two endings":         {OneEnding, func(h *History) { e := h.Views[0].Ends; h.Views[0].Ends = append(e, e[0]) }},
		"viewer got another ending":      {OneEnding, func(h *History) { h.Views[1].Ends[0].Status = "cancelled" }},
		"response has another ending":    {OneEnding, func(h *History) { m := *h.Sends[0].Whole; m.Content = "one "; h.Sends[0].Whole = &m }},
		"page has another ending":        {OneEnding, func(h *History) { h.Reads[0].Messages[1].Status = "failed" }},
		"completed without model's end":  {OneEnding, func(h *History) { h.Model["a"] = Answer{Text: "one two "} }},
		"usage of the session too high":  {UsageOnce, func(h *History) { h.Stored[0].Usage += 12 }},
		"usage of a reply too high":      {UsageOnce, func(h *History) { h.Stored[0].Messages[1].Usage += 12; h.Stored[0].Usage += 12 }},
		"page after a removal":           {Gone, func(h *History) { h.Removals[0] = Removal{"s", at(4)} }},
		"piece after a removal":          {Gone, func(h *History) { h.Removals = append(h.Removals, Removal{"s", at(-30)}) }},
		"request without an answer":      {Answered, func(h *History) { h.Requests[2].Took = time.Minute }},
		"internal error":                 {Documented, func(h *History) { h.Requests[1].Status, h.Requests[1].Code = 500, "internal_error" }},
		"server crashed":                 {Running, func(h *History) { h.Crashes = []string{"panic: oops"} }},
		"503 without Retry-After":        {Documented, func(h *History) { h.Requests[1].RetryAfter = false }},
	} {
		t.Run(name, func(t *testing.T) {
			h := whole()
			test.change(&h)
			found := Check(h)
			for _, v := range found {
				if v.Promise == test.promise {
					return
				}
			}
			t.Errorf("Check does not report %q: %v", test.promise, found)
		})
	}
}

// A lossy history may lack messages and endings, but may not have altered text.
func TestCheck_LossyHistory_OnlyLossAllowed(t *testing.T) {
	h := whole()
	h.Lossy = true
	m := h.Stored[0].Messages
	store(&h, m[0], Message{ID: "msg_2", Role: "assistant", Status: "interrupted", Content: "one ", Usage: 3})
	if found := Check(h); len(found) > 0 {
		t.Errorf("violations although the loss is allowed: %v", found)
	}
	m = h.Stored[0].Messages
	m[1].Status, h.Halted = "streaming", true
	if found := Check(h); len(found) > 0 {
		t.Errorf("violations although the store accepts no endings: %v", found)
	}
	m[1].Content = "two "
	if len(Check(h)) == 0 {
		t.Error("an altered text in a lossy history is not reported")
	}
}

func TestCheck_ReplyEndedByLength_NoViolation(t *testing.T) {
	h := whole()
	m := &h.Stored[0].Messages[3]
	m.Status, m.FinishReason, m.Content = "completed", "length", "three"
	h.Views[1].Ends[0] = *m
	if found := Check(h); len(found) > 0 {
		t.Errorf("violations although the reply ended at its bound: %v", found)
	}
}

func reply(id, content string) Message {
	return Message{ID: id, Role: "assistant", Status: "cancelled", Content: content}
}

// store replaces the messages of the stored session. It keeps the session's count and usage consistent.
func store(h *History, messages ...Message) {
	s := &h.Stored[0]
	s.Messages, s.MessageCount, s.Usage = messages, len(messages), 0
	for _, m := range messages {
		s.Usage += m.Usage
	}
}
