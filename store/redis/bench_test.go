package redis

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/redis/redistest"
)

// BenchmarkAdmission measures Admit, and the time that Redis spends on the script.
func BenchmarkAdmission(b *testing.B) {
	for _, mode := range []string{auth.Live, auth.Test} {
		b.Run(mode, func(b *testing.B) {
			server := redistest.Single(b)
			s, err := Open(b.Context(), server.URL)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			key := aKey(auth.Owner{Account: "a", Mode: mode})
			if _, err := s.CreateKey(b.Context(), key, ""); err != nil {
				b.Fatal(err)
			}
			p := auth.Principal{Account: "a", Mode: mode, KeyID: key.ID, Secret: key.Secrets[0].Hash}
			server.Do("CONFIG", "RESETSTAT")
			b.ReportAllocs()
			for b.Loop() {
				a := &auth.Admission{Principal: p, Limits: limit.TierLimits{RequestsPerMinute: limit.MaxLimit, TokensPerMinute: 1}}
				if err := s.Admit(auth.WithAdmission(b.Context(), a)); err != nil && mode == auth.Live {
					b.Fatal(err)
				}
			}
			reportRedis(b, server)
		})
	}
}

// reportRedis reports how many µs Redis has spent on scripts for each iteration since CONFIG RESETSTAT.
func reportRedis(b *testing.B, server *redistest.Server) {
	b.Helper()
	spent := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`).FindStringSubmatch(server.Do("INFO", "commandstats"))
	if spent == nil {
		b.Fatal("INFO commandstats lacks cmdstat_evalsha")
	}
	all, _ := strconv.ParseFloat(spent[1], 64)
	b.ReportMetric(all/float64(b.N), "redis-µs/op")
}

// BenchmarkConversation measures operations on a session, with admission. One session has two messages. Another session has
// 10,000 messages, and about 60 of them fit the window.
func BenchmarkConversation(b *testing.B) {
	server := redistest.Single(b)
	s, err := Open(b.Context(), server.URL)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	owner := conversation.Owner{Account: "a", Mode: conversation.Live}
	figures := limit.TierLimits{RequestsPerMinute: limit.MaxLimit, TokensPerMinute: limit.MaxLimit}
	admitted := func() context.Context {
		return auth.WithAdmission(b.Context(), &auth.Admission{Principal: auth.Principal{Account: "a", Mode: auth.Live}, Limits: figures})
	}
	do := func(_ any, err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, messages := range []int{2, 10_000} {
		config := conversation.ContextConfig{MaxTokens: 1024, CompressionEnabled: true, RetentionPolicy: conversation.FIFO}
		made, err := s.CreateSession(b.Context(), owner, conversation.NewSession{UserID: aUser, Context: config})
		do(nil, err)
		id := made.Session.ID
		exchange := func(ctx context.Context) {
			begun, err := s.BeginTurn(ctx, owner, aTurn(id, "what is this?"))
			do(nil, err)
			do(s.EndTurn(b.Context(), begun.Key, anAnswer, conversation.Timing{}))
		}
		for range messages / 2 {
			exchange(b.Context())
		}
		for _, op := range []struct {
			name string
			run  func()
		}{
			{"get", func() { do(s.Session(admitted(), owner, id)) }},
			{"history of 50", func() { do(s.Messages(admitted(), owner, id, conversation.MessageQuery{Limit: 50})) }},
			{"turn", func() { exchange(admitted()) }},
		} {
			b.Run(fmt.Sprintf("%s, %d messages", op.name, messages), func(b *testing.B) {
				server.Do("CONFIG", "RESETSTAT")
				b.ReportAllocs()
				for b.Loop() {
					op.run()
				}
				reportRedis(b, server)
			})
			if op.name == "turn" && messages == 2 { // remove the messages that the iterations have added
				do(s.ClearMessages(b.Context(), owner, id, "clears"))
			}
		}
	}
}
