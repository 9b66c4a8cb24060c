package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

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
	// The session is long enough to be folded: what that cost is the session's too, and no reply's.
	if total := session["tokenUsage"].(map[string]any)["total"].(float64); total < sum {
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

func TestKill_AnyMoment_NothingLost(t *testing.T) {
	t.Parallel()
	const rounds, talkers = 50, 6
	random := rand.New(rand.NewPCG(3, 4))
	model := newWordsModel(t, 5*time.Millisecond)
	dir := t.TempDir()
	p := serveIn(t, dir, model.env()...)
	crowd := make([]*talker, talkers)
	for i := range crowd {
		crowd[i] = &talker{
			random: rand.New(rand.NewPCG(5, uint64(i))), session: p.session(),
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
		model.awaitMore(t, 100+random.IntN(2500)) // the random moment
		killed := time.Now()
		p.kill()
		talking.Wait()
		p = serveIn(t, dir, model.env()...)
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
}
