package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Check returns all broken promises of a history.
func Check(h History) []Violation {
	c := &checker{History: h, asked: map[string]Send{}, final: map[string]Message{}, messageOf: map[string]string{}}
	for _, s := range h.Sends {
		c.asked[s.Content] = s
		if s.Reply != "" {
			c.messageOf[s.Reply] = s.Content
		}
	}
	for _, s := range h.Stored {
		c.session(s)
	}
	for _, s := range h.Sends {
		c.sent(s)
	}
	c.order()
	c.endings()
	for _, v := range h.Views {
		c.view(v)
	}
	for _, r := range h.Reads {
		c.read(r)
	}
	for _, r := range h.Requests {
		c.request(r)
	}
	for _, output := range h.Crashes {
		c.broken(Running, "a server ended by itself: %s", output)
	}
	return c.found
}

// checker checks one history.
type checker struct {
	History
	asked     map[string]Send    // by content
	final     map[string]Message // the stored messages, by id
	messageOf map[string]string  // by the id of a reply: the content of its message
	places    []place            // the stored user messages, in the order of each session
	found     []Violation
}

// place is the position of a user message in the history of its session.
type place struct {
	session, content, reply string
	index                   int
}

func (c *checker) broken(promise Promise, format string, about ...any) {
	c.found = append(c.found, Violation{promise, fmt.Sprintf(format, about...)})
}

// session checks the stored messages of a session. Messages of the user and replies must alternate.
func (c *checker) session(s Session) {
	if s.MessageCount != len(s.Messages) {
		c.broken(Stored, "%s has messageCount %d and %d messages", s.ID, s.MessageCount, len(s.Messages))
	}
	sum := 0
	for i, m := range s.Messages {
		c.final[m.ID] = m
		sum += m.Usage
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			c.broken(Order, "message %d of %s has the role %s, want %s", i, s.ID, m.Role, want)
			return
		}
		if m.Role == "user" {
			p := place{session: s.ID, content: m.Content, index: i}
			if i+1 < len(s.Messages) {
				p.reply = s.Messages[i+1].ID
			}
			c.places = append(c.places, p)
			continue
		}
		asked := s.Messages[i-1].Content
		if known, ok := c.messageOf[m.ID]; ok && known != asked {
			c.broken(Unaltered, "reply %s answers %q, but the store has it after %q", m.ID, known, asked)
		}
		c.messageOf[m.ID] = asked
		if m.Status == "streaming" && !c.Halted {
			c.broken(OneEnding, "reply %s has not ended", m.ID)
		}
	}
	if sum != s.Usage {
		c.broken(UsageOnce, "%s has the tokenUsage %d, its replies have %d", s.ID, s.Usage, sum)
	}
}

// sent checks that a confirmed message is stored once, in its session and with its reply.
func (c *checker) sent(s Send) {
	stored := 0
	for _, p := range c.places {
		if p.content != s.Content {
			continue
		}
		stored++
		if p.session != s.Session {
			c.broken(Unaltered, "message %q of %s is stored in %s", s.Content, s.Session, p.session)
		}
		if s.Reply != "" && p.reply != s.Reply {
			c.broken(Once, "message %q got the reply %s, the store has %s", s.Content, s.Reply, p.reply)
		}
	}
	switch {
	case stored > 1:
		c.broken(Once, "message %q is stored %d times", s.Content, stored)
	case stored == 0 && !s.Confirmed.IsZero() && !c.Lossy && !c.removed(s.Session):
		c.broken(Stored, "message %q was confirmed, but is not in %s", s.Content, s.Session)
	}
}

func (c *checker) removed(session string) bool {
	return slices.ContainsFunc(c.Removals, func(r Removal) bool { return r.Session == session })
}

// order checks that a message comes before all messages that were sent after its confirmation. It also checks that a
// client has sent each stored message.
func (c *checker) order() {
	var session string
	var latest time.Time // the latest begin of a send so far
	var of string
	for _, p := range c.places {
		if p.session != session {
			session, latest, of = p.session, time.Time{}, ""
		}
		s, ok := c.asked[p.content]
		if !ok {
			c.broken(Unaltered, "%s has the message %q, which no client sent", p.session, p.content)
			continue
		}
		if !s.Confirmed.IsZero() && s.Confirmed.Before(latest) {
			c.broken(Order, "message %q was confirmed before %q was sent, but stands after it", s.Content, of)
		}
		if s.Begun.After(latest) {
			latest, of = s.Begun, s.Content
		}
	}
}

// request checks the deadline and the result of a request.
func (c *checker) request(r Request) {
	if r.Took > r.Deadline {
		c.broken(Answered, "%s took %v, longer than %v: status %d %s", r.What, r.Took.Round(time.Millisecond), r.Deadline, r.Status, r.Code)
	}
	if r.Status == 0 || r.Status == 200 || r.Expected {
		return
	}
	if !slices.Contains(expected, r.Code) && !slices.Contains(c.Allowed, r.Code) {
		c.broken(Documented, "%s: status %d %q", r.What, r.Status, r.Code)
	}
	if r.Status == 503 && !r.RetryAfter {
		c.broken(Documented, "%s: a 503 without Retry-After", r.What)
	}
}

// expected lists the error codes that a client may get in every run. internal_error is not expected, although it is documented:
// it says that the server failed.
var expected = []string{"service_unavailable", "session_busy"}

// read checks the messages in a response.
func (c *checker) read(r Read) {
	for _, m := range c.Removals {
		if m.Session == r.Session && r.Begun.After(m.At) && len(r.Messages) > 0 {
			c.broken(Gone, "%d messages of %s were served %v after its removal", len(r.Messages), r.Session, r.Begun.Sub(m.At))
		}
	}
	for _, m := range r.Messages {
		if m.Role != "assistant" {
			if s, ok := c.asked[m.Content]; !ok || s.Session != r.Session {
				c.broken(Unaltered, "a page of %s has the message %q, which no client sent there", r.Session, m.Content)
			}
			continue
		}
		c.text("a page with reply "+m.ID, m.ID, 0, m.Content)
	}
}

// text checks a part of a reply that a client got: the model must have sent the same text at this offset.
func (c *checker) text(where, reply string, offset int, text string) {
	asked, ok := c.messageOf[reply]
	if !ok {
		return // the reply to an unconfirmed send of a session that is gone
	}
	sent := c.Model[asked].Text
	if rest := sent[min(offset, len(sent)):]; !strings.HasPrefix(rest, text) {
		at := common(rest, text)
		c.broken(Unaltered, "%s: at byte %d it has %q, the model sent %q", where, offset+at, cut(text[at:]), cut(rest[at:]))
	}
}

// common returns the length of the longest common prefix.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// cut shortens a text for a message.
func cut(text string) string { return text[:min(len(text), 40)] }
