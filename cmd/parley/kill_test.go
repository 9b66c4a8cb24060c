package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// wordsModel is a model server that says "wörd-0 wörd-1 …", as many words as the newest message asks for, one every
// pace, and remembers when it has said what.
type wordsModel struct {
	*httptest.Server
	pace time.Duration
	mu   sync.Mutex
	said map[string][]time.Time // by the newest message: when each word was written
}

func newWordsModel(t *testing.T, pace time.Duration) *wordsModel {
	m := &wordsModel{pace: pace, said: map[string][]time.Time{}}
	m.Server = httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

func (m *wordsModel) answer(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/models") {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"words","object":"model"}]}`)
		return
	}
	var request struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
		http.Error(w, `{"error":{"message":"bad"}}`, http.StatusBadRequest)
		return
	}
	asked := request.Messages[len(request.Messages)-1].Content
	var n int
	_, _ = fmt.Sscanf(asked, "say %d", &n)
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	tick := time.NewTicker(m.pace)
	defer tick.Stop()
	for i := range n {
		if i%3 == 0 { // words come in threes, so that a reply lasts a while without costing the machine too much
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
		}
		quoted, _ := json.Marshal(word(i))
		if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s},\"finish_reason\":null}]}\n\n", quoted); err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
		m.mu.Lock()
		m.said[asked] = append(m.said[asked], time.Now())
		m.mu.Unlock()
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", n, n+10)
}

// saidBefore returns how many words had been said in answer to a message by then.
func (m *wordsModel) saidBefore(asked string, then time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(m.said[asked]), func(at time.Time) bool { return at.After(then) }))
}

// talker talks in one session, over any number of the server's lives, and remembers what it was answered.
type talker struct {
	random   *rand.Rand
	session  string
	sent     int
	answered map[string]string // whole replies it was given, by their id
	begun    map[string]string // what it asked, by the id of the reply that had begun
	checked  map[string]bool   // replies that an earlier check has seen
}

// talk sends messages until the server is gone.
func (k *talker) talk(p *process) {
	for {
		k.sent++
		n := 1 + k.random.IntN(300)
		content := fmt.Sprintf("say %d words, talk %d in %s", n, k.sent, k.session)
		streaming := k.random.IntN(2) == 0
		status, answer, err := p.call("POST", "/v1/sessions/"+k.session+"/messages", map[string]any{"content": content, "streaming": streaming})
		if err != nil {
			return
		}
		if status != http.StatusOK {
			p.t.Errorf("a send was answered %d %v", status, answer)
			return
		}
		id := answer["messageId"].(string)
		k.begun[id] = content
		if !streaming {
			k.answered[id] = answer["content"].(string)
		}
	}
}

// check compares a session with what its talker was answered, after a crash at the time killed. It returns how many
// replies the crash interrupted, and how late the last word was that is missing in one.
func (k *talker) check(t *testing.T, p *process, m *wordsModel, killed time.Time) (interrupted int, lost time.Duration) {
	session := p.must("GET", "/v1/sessions/"+k.session, nil)
	messages := k.history(p)
	if n := int(session["messageCount"].(float64)); n != len(messages) {
		t.Errorf("messageCount is %d, the history has %d", n, len(messages))
	}
	sum := 0.0
	found := map[string]bool{}
	for i, message := range messages {
		id, role, content := message["messageId"].(string), message["role"].(string), message["content"].(string)
		if want := []string{"user", "assistant"}[i%2]; role != want {
			t.Fatalf("message %d of the history is the %s's", i, role)
		}
		if role == "user" {
			continue
		}
		found[id] = true
		asked := messages[i-1]["content"].(string)
		var n int
		_, _ = fmt.Sscanf(asked, "say %d", &n)
		sum += message["usage"].(map[string]any)["total"].(float64)
		switch message["status"] {
		case "completed":
			if content != words(n) {
				t.Errorf("a completed reply of %d words has %d bytes", n, len(content))
			}
		case "interrupted":
			if !strings.HasPrefix(words(n), content) {
				t.Errorf("an interrupted reply is not the beginning of what was said: %q", content)
			}
			if !k.checked[id] { // by this crash, not an earlier one
				interrupted++
				for had := strings.Count(content, " "); m.saidBefore(asked, killed.Add(-lost)) > had; lost += 5 * time.Millisecond {
				}
			}
		default:
			t.Errorf("after the crash a reply is %v", message["status"])
		}
		if want, ok := k.answered[id]; ok && want != content {
			t.Errorf("a reply that was answered with %d bytes has %d", len(want), len(content))
		}
		if want, ok := k.begun[id]; ok && want != asked {
			t.Errorf("a reply that was begun for %q answers %q", want, asked)
		}
	}
	k.checked = found
	for id := range k.begun {
		if !found[id] {
			t.Errorf("the answered message %s is gone", id)
		}
	}
	if total := session["tokenUsage"].(map[string]any)["total"].(float64); total != sum {
		t.Errorf("tokenUsage.total is %v, the replies' sum %v", total, sum)
	}
	return interrupted, lost
}

// history returns all messages of the session, oldest first.
func (k *talker) history(p *process) (messages []map[string]any) {
	cursor := ""
	for {
		page := p.must("GET", "/v1/sessions/"+k.session+"/messages?order=asc&limit=100"+cursor, nil)
		for _, message := range page["data"].([]any) {
			messages = append(messages, message.(map[string]any))
		}
		next, more := page["pagination"].(map[string]any)["nextCursor"].(string)
		if !more {
			return messages
		}
		cursor = "&cursor=" + next
	}
}

func TestKilledAtAnyMomentNothingThatWasAnsweredIsLost(t *testing.T) {
	const rounds, talkers = 50, 6
	random := rand.New(rand.NewPCG(3, 4))
	model := newWordsModel(t, 5*time.Millisecond)
	dir := t.TempDir()
	env := []string{"PARLEY_ADMIN_KEY=" + declaredKey, "OPENAI_BASE_URL=" + model.URL, "PARLEY_MODEL=words"}
	p := serveIn(t, dir, env...)
	crowd := make([]*talker, talkers)
	for i := range crowd {
		session := p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"})["sessionId"].(string)
		crowd[i] = &talker{
			random: rand.New(rand.NewPCG(5, uint64(i))), session: session,
			answered: map[string]string{}, begun: map[string]string{}, checked: map[string]bool{},
		}
	}
	answered, interrupted := 0, 0
	var lost time.Duration
	for range rounds {
		var talking sync.WaitGroup
		for _, k := range crowd {
			talking.Go(func() { k.talk(p) })
		}
		<-time.After(time.Duration(50+random.IntN(700)) * time.Millisecond) // the random moment
		killed := time.Now()
		p.kill()
		talking.Wait()
		p = serveIn(t, dir, env...)
		for _, k := range crowd {
			n, late := k.check(t, p, model, killed)
			interrupted += n
			lost = max(lost, late)
		}
	}
	for _, k := range crowd {
		answered += len(k.answered)
	}
	t.Logf("%d crashes: %d whole replies had been answered, %d were interrupted; what was lost of those had been said at most %v before", rounds, answered, interrupted, lost)
	if interrupted < rounds || answered < rounds {
		t.Error("that was too little load to show anything")
	}
	if lost > 500*time.Millisecond {
		t.Errorf("text that was %v old was lost: the journal's tick is 50 ms", lost)
	}
}
