package redis

import (
	"context"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/stream"
)

// cost is what an operation costs: the commands that Redis executes, those in scripts included; the bytes that Redis receives; and
// the objects that this process allocates.
type cost struct{ commands, bytes, allocations int }

// costOf runs an operation and returns its cost.
func costOf(t *testing.T, server *redistest.Server, run func()) (c cost) {
	t.Helper()
	server.Do("CONFIG", "RESETSTAT")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	c.allocations = int(after.Mallocs - before.Mallocs)
	counts := server.Do("INFO", "commandstats")
	for _, count := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(counts, -1) {
		if n, _ := strconv.Atoi(count[2]); count[1] != "info" && count[1] != "config|resetstat" {
			c.commands += n
		}
	}
	_, received, _ := strings.Cut(server.Do("INFO", "stats"), "total_net_input_bytes:")
	received, _, _ = strings.Cut(received, "\r")
	c.bytes, _ = strconv.Atoi(received)
	return c
}

// TestOperations_CommandsBytesAllocations_AtMost counts what an operation costs, with the admission of its request. It does not
// count the first call of each operation, which sends the text of the script. A change that costs more must change the table. A
// poll may renew the lease of the session, which takes two commands. The allocations are the least of several calls, because the
// go-redis client sometimes allocates in another goroutine. They have a margin of 5 %, for the race detector.
func TestOperations_CommandsBytesAllocations_AtMost(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	owner := conversation.Owner{Account: "a", Mode: conversation.Live}
	p := newKey(t, s, auth.Owner{Account: owner.Account, Mode: auth.Live})
	session := newSession(t, s, owner)
	admitted := func() context.Context {
		limits := limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 100_000}
		return auth.WithAdmission(t.Context(), &auth.Admission{Principal: p, Limits: limits})
	}
	var begun conversation.TurnStart
	operations := []struct {
		name string
		most cost
		run  func() error
	}{
		{"admit", cost{6, 215, 25}, func() error { return s.Admit(admitted()) }},
		{"get a session", cost{8, 290, 32}, // the settings are read by a second command, so that no other script reads long instructions
			func() error { _, err := s.Session(admitted(), owner, session.ID); return err }},
		{"begin a turn", cost{25, 720, 106}, func() (err error) {
			begun, err = s.BeginTurn(admitted(), owner, aTurn(session.ID, "hello"))
			return err
		}},
		{"write the first text", cost{1, 90, 22}, func() error {
			return s.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{segment(begun.Key, 0, "some text")})
		}},
		{"poll a live session", cost{8, 250, 51}, func() error {
			_, err := s.Poll(t.Context(), []conversation.Followed{followedReply(begun.Key, 0)})
			return err
		}},
		{"end a turn", cost{20, 390, 35}, func() error {
			_, err := s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{Duration: 1e9, FirstToken: 1e8})
			return err
		}},
	}
	measuring := costOf(t, server, func() {})
	least := make([]cost, len(operations))
	for round := range 5 {
		for i, op := range operations {
			c, l := costOf(t, server, func() { must(t, op.run()) }), &least[i]
			c.bytes -= measuring.bytes
			c.allocations -= measuring.allocations
			if round > 0 && (c.commands > op.most.commands || c.bytes > op.most.bytes) {
				t.Errorf("%s: %+v; want at most %+v", op.name, c, op.most)
			}
			if round == 1 || round > 1 && c.allocations < l.allocations {
				*l = c
			}
		}
	}
	for i, op := range operations {
		t.Logf("%s: %+v", op.name, least[i])
		if least[i].allocations > op.most.allocations {
			t.Errorf("%s: at least %d allocations, want at most %d", op.name, least[i].allocations, op.most.allocations)
		}
	}
}
