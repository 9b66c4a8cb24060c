package turn

import (
	"errors"
	"fmt"
	"testing"

	"parley/conversation"
)

func ownerNumber(n int) conversation.Owner {
	return conversation.Owner{Account: fmt.Sprint("account ", n), Mode: conversation.Live}
}

// takeAll takes slots for an owner until one is refused. It returns their number and the refusal.
func takeAll(s *slots, owner conversation.Owner) (taken int, refused error) {
	for {
		if _, err := s.take(sendKey{owner: owner}); err != nil {
			return taken, err
		}
		taken++
	}
}

func TestSlots_GreedyOwners_SlotsLeftForOthers(t *testing.T) {
	for _, test := range []struct {
		limit int
		taken []int // by owners that take as many slots as they can, one after the other
	}{
		{1, []int{1, 0}}, {2, []int{2, 0}}, {3, []int{3, 0}}, {4, []int{3, 1}}, {8, []int{6, 2}}, {100, []int{75, 19, 5, 1}}, {10_000, []int{7500, 1875}},
	} {
		s := newSlots(test.limit)
		for i, want := range test.taken {
			if got, _ := takeAll(s, ownerNumber(i)); got != want {
				t.Errorf("of %d slots, owner %d got %d, want %d", test.limit, i, got, want)
			}
		}
	}
}

func TestSlots_TwoOwnersAlternate_EqualShares(t *testing.T) {
	s := newSlots(700)
	for range 700 {
		_, _ = s.take(sendKey{owner: ownerNumber(0)})
		_, _ = s.take(sendKey{owner: ownerNumber(1)})
	}
	if a, b := s.owners[ownerNumber(0)], s.owners[ownerNumber(1)]; a != 300 || b != 300 {
		t.Errorf("the owners got %d and %d of 700 slots, want 300 each", a, b)
	}
}

func TestSlots_Refused_ErrorTellsShareFromLimit(t *testing.T) {
	s := newSlots(4)
	if _, err := takeAll(s, ownerNumber(0)); !errors.Is(err, conversation.ErrInflightShare) {
		t.Errorf("an owner with three quarters of the slots got %v", err)
	}
	if _, err := takeAll(s, ownerNumber(1)); !errors.Is(err, conversation.ErrInflightLimit) {
		t.Errorf("without a free slot, an owner got %v", err)
	}
	if n, err := takeAllOf(newSlots(0), 10_000); n != 10_000 || err != nil {
		t.Errorf("without a limit, an owner got %d slots, %v", n, err)
	}
}

// takeAllOf takes n slots for one owner. It returns the number of slots and the first refusal.
func takeAllOf(s *slots, n int) (taken int, refused error) {
	for range n {
		if _, err := s.take(sendKey{owner: ownerNumber(0)}); err != nil {
			return taken, err
		}
		taken++
	}
	return taken, nil
}

// The caller and the turn of a send each release the send's slot, in any order.
func TestSlots_RepeatsOfSendInFlight_OneAdmittedBeyondLimit(t *testing.T) {
	s := newSlots(1)
	send := sendKey{owner: ownerNumber(0), session: "session", key: "key"}
	first, err := s.take(send)
	if err != nil {
		t.Fatal(err)
	}
	first.hold() // as a turn does
	repeat, err := s.take(send)
	if err != nil {
		t.Fatalf("a repeat of a send in flight: %v", err)
	}
	for name, other := range map[string]sendKey{
		"a second repeat": send, "another key": {owner: send.owner, session: send.session, key: "other"},
		"another session": {owner: send.owner, session: "other", key: send.key},
		"another account": {owner: ownerNumber(1), session: send.session, key: send.key}, "no key": {owner: send.owner, session: send.session},
	} {
		if _, err := s.take(other); !errors.Is(err, conversation.ErrInflightLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	first.Release()
	repeat.Release()
	if s.taken != 1 {
		t.Errorf("while its turn is live, a send has %d slots", s.taken)
	}
	first.Release()
	if s.taken != 0 || len(s.owners) != 0 || len(s.sends) != 0 {
		t.Errorf("after all releases: %+v", s)
	}
}
