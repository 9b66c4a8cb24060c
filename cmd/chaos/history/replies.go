package history

import (
	"fmt"
	"slices"
	"strings"
)

// endings checks that the store and all clients have the same ending of a reply, and that the ending fits the model's
// response.
func (c *checker) endings() {
	seen := make(map[string]Message) // by id: the first ending
	compare := func(who string, m Message) {
		first, ok := seen[m.ID]
		if !ok {
			seen[m.ID] = m
			return
		}
		if first.Status != m.Status || first.Content != m.Content {
			c.broken(OneEnding, "reply %s: %s has %s with %d bytes, another one has %s with %d bytes",
				m.ID, who, m.Status, len(m.Content), first.Status, len(first.Content))
		}
	}
	for _, s := range c.Stored {
		for _, m := range s.Messages {
			if m.Role == "assistant" {
				c.text("reply "+m.ID+" in the store", m.ID, 0, m.Content)
			}
			if m.ended() {
				c.ending(m)
				compare("the store", m)
			}
		}
	}
	if c.Lossy {
		seen = make(map[string]Message) // the store may have lost the ending that a client got
	}
	for _, s := range c.Sends {
		if s.Whole != nil && !c.Lossy {
			compare("a response", *s.Whole)
		}
	}
	for _, v := range c.Views {
		for _, m := range v.Ends {
			if !c.Lossy {
				compare(v.Viewer, m)
			}
			c.text(v.Viewer+": the end of reply "+m.ID, m.ID, 0, m.Content)
		}
	}
	for _, r := range c.Reads {
		for _, m := range r.Messages {
			if m.ended() && !c.Lossy {
				compare("a page", m)
			}
		}
	}
}

// states lists the final states of a reply.
var states = []string{"completed", "cancelled", "failed", "interrupted"}

// ending checks the final state of a stored reply.
func (c *checker) ending(m Message) {
	if !slices.Contains(states, m.Status) {
		c.broken(OneEnding, "reply %s has the status %q", m.ID, m.Status)
	}
	sent := c.Model[c.messageOf[m.ID]]
	switch {
	case m.Status != "completed":
	case m.FinishReason == "length" && strings.HasPrefix(sent.Text, m.Content):
	case !sent.Whole:
		c.broken(OneEnding, "reply %s is completed, but the model did not finish it", m.ID)
	case m.Content != sent.Text:
		c.broken(Unaltered, "reply %s is completed with %d bytes, the model sent %d", m.ID, len(m.Content), len(sent.Text))
	case sent.Usage != 0 && m.Usage != sent.Usage:
		c.broken(UsageOnce, "reply %s has the usage %d, the model reported %d", m.ID, m.Usage, sent.Usage)
	}
}

// view checks the pieces that a viewer got of a reply: without a gap, without a repetition, and unaltered. If the store has lost
// writes, a viewer may begin anew at another offset.
func (c *checker) view(v View) {
	where := fmt.Sprintf("%s, reply %s", v.Viewer, v.Reply)
	var text strings.Builder
	begin := 0
	for i, p := range v.Pieces {
		if want := begin + text.Len(); p.Offset != want {
			if !c.Lossy && (!v.Late || i > 0) {
				c.broken(Untorn, "%s: piece %d begins at %d, want %d", where, i, p.Offset, want)
				return
			}
			c.part(v, where, begin, text.String())
			begin = p.Offset
			text.Reset()
		}
		text.WriteString(p.Text)
		for _, r := range c.Removals {
			if r.Session == v.Session && p.At.After(r.At.Add(grace)) {
				c.broken(Gone, "%s: text of %s arrived %v after its removal", where, v.Session, p.At.Sub(r.At))
			}
		}
	}
	c.part(v, where, begin, text.String())
	if len(v.Ends) > 1 {
		c.broken(OneEnding, "%s: %d endings", where, len(v.Ends))
	}
}

// part checks consecutive text that a viewer got. A viewer may have got text that a node did not store before it crashed. Then
// the reply is interrupted.
func (c *checker) part(v View, where string, offset int, text string) {
	c.text(where, v.Reply, offset, text)
	m, ok := c.final[v.Reply]
	if !ok || c.Lossy || m.Status == "interrupted" || !m.ended() {
		return
	}
	if !strings.HasPrefix(m.Content[min(offset, len(m.Content)):], text) {
		c.broken(Unaltered, "%s: the viewer got %d bytes from %d, which are not in the %d stored bytes", where, len(text), offset, len(m.Content))
	}
}
