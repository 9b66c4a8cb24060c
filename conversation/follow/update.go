package follow

import (
	"parley/conversation"
	"parley/stream"
)

// state is this node's knowledge of a session that it follows.
type state struct {
	expires conversation.Time
	cleared string // Session.Cleared after the newest clear that viewers have seen
	// head is the id of the newest message that viewers have seen, or that existed before this node followed the session.
	head    string
	remote  string               // id of the live reply of another node; "" for none
	summary conversation.Summary // the newest known summary, without its text
	polled  bool                 // whether a poll has set summary
	// turn is the key of this node's live turn; the zero value means that there is none.
	turn conversation.TurnKey
}

// actions has the actions that an update requires. carryOut carries them out in the order of the fields.
type actions struct {
	gone    stream.EventKind     // Deleted or Expired: the session no longer exists; the other fields are unset
	clear   string               // show that the history was removed up to this id
	summary *stream.SummaryStats // show a new summary
	stop    error                // stop this node's turn, for this cause
	text    []byte               // append this text to the other node's live reply
	end     bool                 // show the ending of the other node's reply
	catchUp bool                 // show new messages
}

// decide returns the new state after an update, and the actions that the update requires. It leaves remote and head
// unchanged. carryOut changes remote and head when it carries out end and catchUp.
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
	// While a turn of this node is live, the session's head is the turn's reply, unless a newer turn has begun.
	do.catchUp = u.Session.Head != s.head && (!live || u.Session.Fence > s.turn.Fence)
	return s, do
}

// stopCause returns the reason why this node's turn must stop; nil if the turn continues. It ignores an update from
// before the turn began.
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

// newer returns the messages of a page that come after head, oldest first, and the id of the message before the first
// of these. The page is sorted newest first.
func newer(page conversation.MessagePage, head string) (previous string, messages []conversation.Message) {
	all := page.Messages
	for i, m := range all {
		if m.ID <= head {
			return head, reversed(all[:i])
		}
	}
	// If the page does not reach back to head, previous is the oldest message on the page. A message that fills the page alone
	// is shown, because otherwise viewers would never see it.
	if last := len(all) - 1; page.More && last > 0 {
		return all[last].ID, reversed(all[:last])
	} else if page.More && last == 0 {
		return stream.Before(all[0].ID).ID, all
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
