package redis

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/stream"
)

// costOf runs an operation. It returns the number of commands that Redis has executed, those in scripts included, and the number
// of bytes that Redis has received.
func costOf(t *testing.T, server *redistest.Server, run func()) (commands, bytes int) {
	t.Helper()
	server.Do("CONFIG", "RESETSTAT")
	run()
	counts := server.Do("INFO", "commandstats")
	for _, count := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(counts, -1) {
		if n, _ := strconv.Atoi(count[2]); count[1] != "info" && count[1] != "config|resetstat" {
			commands += n
		}
	}
	_, received, _ := strings.Cut(server.Do("INFO", "stats"), "total_net_input_bytes:")
	received, _, _ = strings.Cut(received, "\r")
	bytes, _ = strconv.Atoi(received)
	return commands, bytes
}

// TestOperations_CommandsAndBytes_AtMost counts what an operation costs Redis, with the admission of its request. It counts the
// second call of each operation, because the first call sends the text of the script. A change that needs more commands or bytes
// must change the table. A poll may renew the lease of the session, which takes two commands.
func TestOperations_CommandsAndBytes_AtMost(t *testing.T) {
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
		name            string
		commands, bytes int // maximum
		run             func() error
	}{
		{"admit", 6, 290, func() error { return s.Admit(admitted()) }},
		{"get a session", 7, 360, func() error { _, err := s.Session(admitted(), owner, session.ID); return err }},
		{"begin a turn", 25, 790, func() (err error) {
			begun, err = s.BeginTurn(admitted(), owner, aTurn(session.ID, "hello"))
			return err
		}},
		{"write the first text", 1, 100, func() error {
			return s.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{segment(begun.Key, 0, "some text")})
		}},
		{"poll a live session", 8, 250, func() error {
			_, err := s.Poll(t.Context(), []conversation.Followed{followedReply(begun.Key, 0)})
			return err
		}},
		{"end a turn", 20, 400, func() error {
			_, err := s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{Duration: 1e9, FirstToken: 1e8})
			return err
		}},
	}
	_, measuring := costOf(t, server, func() {})
	for round := range 2 {
		for _, op := range operations {
			commands, bytes := costOf(t, server, func() { must(t, op.run()) })
			bytes -= measuring
			if round > 0 && (commands > op.commands || bytes > op.bytes) {
				t.Errorf("%s: %d commands, %d bytes; want at most %d and %d", op.name, commands, bytes, op.commands, op.bytes)
			}
			t.Logf("%s: %d commands, %d bytes", op.name, commands, bytes)
		}
	}
}
