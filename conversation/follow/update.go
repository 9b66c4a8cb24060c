package follow

import (
	"parley/conversation"
	"parley/stream"
)

// state is what this node knows of a session that it follows.
type state struct {
	expires conversation.Time
	cleared string               // the newest clear that viewers were shown
	head    string               // the newest message that viewers were shown, or that was there before the session was followed
	remote  string               // id of the live reply of another node; "" for none
	summary conversation.Summary // the newest that viewers know of, without its text
	polled  bool                 // whether the session was polled, so that summary is known
	// turn is the live turn of this node; the zero value is none.
	turn conversation.TurnKey
}

// actions are what an update asks for, in the order of the fields.
type actions struct {
	gone    stream.EventKind     // Deleted or Expired: the session does not exist any more. The other fields are unset then
	clear   string               // show that the history was removed up to this id
	summary *stream.SummaryStats // show a new summary
	stop    error                // stop this node's turn, for this cause
	text    []byte               // append this to the other node's reply
	end     bool                 // show how the other node's reply ended
	catchUp bool                 // show new messages
}

// decide returns what an update of a session asks for, and the state after it. Carrying out end and catchUp changes remote and
// head; decide leaves them.
func decide(s state, u *conversation.Update) (state, actions) {
	var do actions
	if u.Gone {
		do.gone = stream.Deleted
		if u.At >= s.expires {
			do.gone = stream.Expired
		}
		return s, do
	}
	if u.Session.Cleared > s.cleared {
		do.clear = u.Session.Cleared
		s.cleared = u.Session.Cleared
		s.summary.Count = 0
	}
	if u.Summary.Last > s.summary.Last {
		if s.polled {
			shown := u.Summary.Stats(max(u.Summary.Count-s.summary.Count, 0))
			do.summary = &shown
		}
		s.summary = u.Summary
	}
	s.polled = true
	live := s.turn != conversation.TurnKey{}
	if live {
		do.stop = stopCause(s.turn, u)
	}
	switch {
	case s.remote == "":
	case u.Session.LiveReply == s.remote:
		do.text = u.Text
	default:
		do.end = true
	}
	// While a turn of this node is live, the head is its own, unless a newer turn has begun.
	do.catchUp = u.Session.Head != s.head && (!live || u.Session.Fence > s.turn.Fence)
	return s, do
}

// stopCause returns why this node's turn has to stop; nil if it goes on. An update from before the turn began says nothing about
// it.
func stopCause(turn conversation.TurnKey, u *conversation.Update) error {
	switch {
	case u.Session.Fence < turn.Fence:
		return nil
	case u.Session.Fence > turn.Fence || u.Session.LiveReply != turn.ReplyID:
		return stream.ErrInterrupted // another node has ended the turn
	case u.Stop == conversation.StopCleared:
		return conversation.ErrHistoryCleared
	case u.Stop == conversation.StopCancelled:
		return stream.ErrCancelled
	}
	return nil
}

// newer returns the messages of a page, which begins with the newest, that come after head: oldest first, with the id of the
// message before them.
func newer(page conversation.MessagePage, head string) (previous string, messages []conversation.Message) {
	all := page.Messages
	for i, m := range all {
		if m.ID <= head {
			return head, reversed(all[:i])
		}
	}
	if page.More && len(all) > 0 { // the page does not reach back to head: its oldest message comes before the others
		last := len(all) - 1
		return all[last].ID, reversed(all[:last])
	}
	return max(head, page.Session.Cleared), reversed(all)
}

func reversed(messages []conversation.Message) []conversation.Message {
	out := make([]conversation.Message, 0, len(messages))
	for i := len(messages) - 1; i >= 0; i-- {
		out = append(out, messages[i])
	}
	return out
}
