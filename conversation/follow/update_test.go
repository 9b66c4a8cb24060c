package follow

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"parley/conversation"
	"parley/stream"
)

func TestDecide_EachUpdate_ExpectedStateAndActions(t *testing.T) {
	turn := conversation.TurnKey{SessionID: "s", ReplyID: "m6", Fence: 3}
	live := func(reply string, fence int64) conversation.Session {
		return conversation.Session{Head: reply, LiveReply: reply, Fence: fence}
	}
	for name, test := range map[string]struct {
		state  state
		update conversation.Update
		want   actions
		after  func(*state) // applies the expected changes to the state
	}{
		"no change: no action": {
			state{head: "m4"}, conversation.Update{Session: conversation.Session{Head: "m4"}}, actions{}, nil,
		},
		"new messages: catch up": {
			state{head: "m4"}, conversation.Update{Session: conversation.Session{Head: "m6"}}, actions{catchUp: true}, nil,
		},
		"deleted: show the deletion": {
			state{expires: 100, head: "m4"}, conversation.Update{Gone: true, At: 99}, actions{gone: stream.Deleted},
			func(s *state) { s.polled = false },
		},
		"expired: show the expiry": {
			state{expires: 100, head: "m4"}, conversation.Update{Gone: true, At: 100}, actions{gone: stream.Expired},
			func(s *state) { s.polled = false },
		},
		"cleared: show the clear, then catch up": {
			state{head: "m4", summary: conversation.Summary{Last: "m2", Count: 2}},
			conversation.Update{Session: conversation.Session{Head: "m5", Cleared: "m5"}},
			actions{clear: "m5", catchUp: true}, func(s *state) { s.cleared, s.summary.Count = "m5", 0 },
		},
		"clear already shown: no action": {
			state{head: "m5", cleared: "m5"}, conversation.Update{Session: conversation.Session{Head: "m5", Cleared: "m5"}}, actions{}, nil,
		},
		"update from before the clear: no action": {
			state{head: "m5", cleared: "m5"}, conversation.Update{Session: conversation.Session{Head: "m5", Cleared: "m3"}}, actions{}, nil,
		},
		"summary in the first poll: recorded, not shown": {
			state{head: "m4"}, conversation.Update{Session: conversation.Session{Head: "m4"}, Summary: conversation.Summary{Last: "m2", Count: 2}},
			actions{}, func(s *state) { s.summary = conversation.Summary{Last: "m2", Count: 2} },
		},
		"newer summary: shown": {
			state{head: "m4", polled: true, summary: conversation.Summary{Last: "m1", Count: 1}},
			conversation.Update{Session: conversation.Session{Head: "m4"}, Summary: conversation.Summary{Last: "m3", Count: 3, Replaced: 50, Tokens: 6}},
			actions{summary: &stream.SummaryStats{Summarised: 2, TokensBefore: 50, TokensAfter: 10}},
			func(s *state) { s.summary = conversation.Summary{Last: "m3", Count: 3, Replaced: 50, Tokens: 6} },
		},
		"summary already known: no action": {
			state{head: "m4", polled: true, summary: conversation.Summary{Last: "m3", Count: 3}},
			conversation.Update{Session: conversation.Session{Head: "m4"}, Summary: conversation.Summary{Last: "m3", Count: 3}}, actions{}, nil,
		},
		"other node's reply grows: append text": {
			state{head: "m6", remote: "m6"}, conversation.Update{Session: live("m6", 3), Text: []byte("more")}, actions{text: []byte("more")}, nil,
		},
		"other node's reply ended: show its ending": {
			state{head: "m6", remote: "m6"}, conversation.Update{Session: conversation.Session{Head: "m6", Fence: 3}}, actions{end: true}, nil,
		},
		"other node's reply ended, next began: end it, catch up": {
			state{head: "m6", remote: "m6"}, conversation.Update{Session: live("m8", 4)}, actions{end: true, catchUp: true}, nil,
		},
		"own turn is live: no action": {
			state{head: "m6", turn: turn}, conversation.Update{Session: live("m6", 3)}, actions{}, nil,
		},
		"update from before the own turn: ignored": {
			state{head: "m6", turn: turn}, conversation.Update{Session: conversation.Session{Head: "m4", Fence: 2}, Stop: conversation.StopCancelled}, actions{}, nil,
		},
		"own turn cancelled: stop it": {
			state{head: "m6", turn: turn}, conversation.Update{Session: live("m6", 3), Stop: conversation.StopCancelled}, actions{stop: stream.ErrCancelled}, nil,
		},
		"own turn cleared: stop it": {
			state{head: "m6", turn: turn}, conversation.Update{Session: live("m6", 3), Stop: conversation.StopCleared}, actions{stop: conversation.ErrHistoryCleared}, nil,
		},
		"own turn ended by another node: interrupt it": {
			state{head: "m6", turn: turn}, conversation.Update{Session: conversation.Session{Head: "m6", Fence: 3}}, actions{stop: stream.ErrInterrupted}, nil,
		},
		"own turn ended, next began: interrupt it, catch up": {
			state{head: "m6", turn: turn}, conversation.Update{Session: live("m8", 4)}, actions{stop: stream.ErrInterrupted, catchUp: true}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.state
			want.polled = true
			if test.after != nil {
				test.after(&want)
			}
			got, do := decide(test.state, &test.update)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(state{})); diff != "" {
				t.Errorf("the state (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, do, cmp.AllowUnexported(actions{}), cmpopts.EquateErrors()); diff != "" {
				t.Errorf("the actions (-want +got):\n%s", diff)
			}
		})
	}
}

// The test draws updates in any order. The state must never go back, and a repeated update must cause no new action.
func TestDecide_AnyUpdates_NeverGoesBackOrRepeats(t *testing.T) {
	ids := []string{"", "m1", "m2", "m3", "m4"}
	rapid.Check(t, func(t *rapid.T) {
		id := func(name string) string { return rapid.SampledFrom(ids).Draw(t, name) }
		s := state{expires: 10, remote: id("remote")}
		if rapid.Bool().Draw(t, "has a turn") {
			s.turn = conversation.TurnKey{SessionID: "s", ReplyID: "m2", Fence: 2}
		}
		for range rapid.IntRange(1, 10).Draw(t, "updates") {
			u := conversation.Update{
				Gone: rapid.IntRange(0, 5).Draw(t, "gone") == 0, At: conversation.Time(rapid.IntRange(5, 15).Draw(t, "at")), Text: []byte("x"),
				Session: conversation.Session{Head: id("head"), Cleared: id("cleared"), LiveReply: id("live"), Fence: int64(rapid.IntRange(1, 3).Draw(t, "fence"))},
				Stop:    rapid.SampledFrom([]conversation.Stop{"", conversation.StopCancelled, conversation.StopCleared}).Draw(t, "stop"),
				Summary: conversation.Summary{Last: id("summary"), Count: rapid.IntRange(0, 5).Draw(t, "count")},
			}
			next, do := decide(s, &u)
			switch {
			case next.cleared < s.cleared || next.summary.Last < s.summary.Last:
				t.Fatalf("the state went back: %+v after %+v", next, s)
			case do.text != nil && do.end:
				t.Fatalf("the reply grows and ends: %+v", do)
			case do.stop != nil && (s.turn == conversation.TurnKey{} || u.Session.Fence < s.turn.Fence):
				t.Fatalf("update %+v stops the turn: %v", u, do.stop)
			case do.summary != nil && do.summary.Summarised < 0:
				t.Fatalf("the shown summary is %+v", do.summary)
			case u.Gone && (next != s || do.clear != "" || do.stop != nil || do.end || do.catchUp):
				t.Fatalf("the session is gone, but the actions are %+v", do)
			}
			if again, twice := decide(next, &u); !u.Gone && (again != next || twice.clear != "" || twice.summary != nil || !errors.Is(twice.stop, do.stop)) {
				t.Fatalf("the same update again gives the actions %+v", twice)
			}
			s = next
		}
	})
}

func TestNewer_ReturnsMessagesAfterHead(t *testing.T) {
	page := func(more bool, cleared string, ids ...string) (p conversation.MessagePage) {
		for _, id := range ids {
			p.Messages = append(p.Messages, conversation.Message{ID: id})
		}
		p.More, p.Session.Cleared = more, cleared
		return p
	}
	for name, test := range map[string]struct {
		page     conversation.MessagePage
		head     string
		previous string
		want     []string
	}{
		"two newer messages":      {page(true, "", "m4", "m3", "m2", "m1"), "m2", "m2", []string{"m3", "m4"}},
		"no newer message":        {page(true, "", "m2", "m1"), "m2", "m2", nil},
		"head is empty":           {page(false, "", "m2", "m1"), "", "", []string{"m1", "m2"}},
		"head was cleared":        {page(false, "m3", "m5", "m4"), "m2", "m3", []string{"m4", "m5"}},
		"head is before the page": {page(true, "", "m9", "m8", "m7"), "m2", "m7", []string{"m8", "m9"}},
		"one message fills page":  {page(true, "", "m9"), "m2", "m", []string{"m9"}},
		"all messages cleared":    {page(false, "m3"), "m2", "m3", nil},
	} {
		t.Run(name, func(t *testing.T) {
			previous, messages := newer(test.page, test.head)
			var got []string
			for _, m := range messages {
				got = append(got, m.ID)
			}
			if previous != test.previous || !cmp.Equal(got, test.want) {
				t.Errorf("%v after %q, want %v after %q", got, previous, test.want, test.previous)
			}
		})
	}
}

// overTurn is a turn that has ended.
type overTurn struct{ Turn }

func (overTurn) Key() conversation.TurnKey {
	return conversation.TurnKey{SessionID: "s", ReplyID: "m2", Fence: 1}
}

func (overTurn) Over() bool { return true }

// A session with viewers must not keep the prompt of its last turn in memory.
func TestTakeDue_TurnOver_ReleasesTurn(t *testing.T) {
	hub := stream.NewHub()
	defer hub.Open("s").Close() // stands for a viewer
	f := New(Options{Hub: hub, Nodes: struct{ conversation.Nodes }{}})
	f.Began(overTurn{}, conversation.Session{ID: "s", ExpiresAt: conversation.TimeOf(time.Now().Add(time.Hour))})
	f.takeDue()
	if x := f.sessions["s"]; x == nil || x.turn != nil {
		t.Errorf("the followed session is %+v, want one without a turn", x)
	}
	f.close()
}

// Two nodes summarise a session at once. The store first accepts the summary of the other node. A poll of this node
// finds that summary before the store refuses this node's summary.
func TestShowSummary_SaveRefused_KeepsNewerSummary(t *testing.T) {
	f := New(Options{Hub: stream.NewHub()})
	x := &session{id: "s", state: state{summary: conversation.Summary{Last: "a"}, polled: true}}
	f.sessions[x.id] = x
	refused := errors.New("refused")
	err := f.ShowSummary(x.id, conversation.Summary{Last: "b", Text: "ours"}, 1, func() error {
		x.state.summary = conversation.Summary{Last: "c"} // as if a poll had found this summary
		return refused
	})
	if !errors.Is(err, refused) || x.state.summary.Last != "c" {
		t.Errorf("ShowSummary returned %v; the known summary ends with %q, want c", err, x.state.summary.Last)
	}
	_ = f.ShowSummary(x.id, conversation.Summary{Last: "d"}, 1, func() error { return refused })
	if x.state.summary.Last != "c" {
		t.Errorf("after a refusal the known summary ends with %q, want c", x.state.summary.Last)
	}
	_ = f.ShowSummary(x.id, conversation.Summary{Last: "b"}, 1, func() error { return refused }) // older than the known summary
	if x.state.summary.Last != "c" {
		t.Errorf("after an older summary, the known summary ends with %q, want c", x.state.summary.Last)
	}
}
