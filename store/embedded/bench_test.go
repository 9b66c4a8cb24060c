package embedded

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"parley/conversation"
	"parley/stream"
)

var somebody = conversation.Owner{Account: "acme", Mode: conversation.Live}

func openBench(b *testing.B, options Options) *Store {
	b.Helper()
	s, err := Open(filepath.Join(b.TempDir(), "parley.db"), options)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func benchSession(b *testing.B, s *Store) conversation.Session {
	b.Helper()
	made, err := s.CreateSession(b.Context(), somebody, conversation.NewSession{
		UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig,
	})
	if err != nil {
		b.Fatal(err)
	}
	return made.Session
}

// BenchmarkTurn measures BeginTurn and EndTurn. Each call needs a commit, which all waiting operations share. The runs with
// synced=false show the cost without the disk.
func BenchmarkTurn(b *testing.B) {
	for _, sessions := range []int{1, 64} {
		for _, noSync := range []bool{false, true} {
			name := fmt.Sprintf("sessions=%d/synced=%t", sessions, !noSync)
			b.Run(name, func(b *testing.B) { benchmarkTurns(b, sessions, noSync) })
		}
	}
}

func benchmarkTurns(b *testing.B, sessions int, noSync bool) {
	s := openBench(b, Options{noSync: noSync})
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = benchSession(b, s).ID
	}
	question, answer := strings.Repeat("what? ", 20), strings.Repeat("this and that. ", 60)
	b.ReportAllocs()
	b.ResetTimer()
	var writers sync.WaitGroup
	for i, id := range ids {
		turns := b.N / sessions
		if i < b.N%sessions {
			turns++
		}
		writers.Go(func() {
			for range turns {
				begun, err := s.BeginTurn(b.Context(), somebody, conversation.NewTurn{
					SessionID: id, Role: conversation.User, Content: question, Tokens: 40, Waiter: "w",
				})
				if err == nil {
					_, err = s.EndTurn(b.Context(), begun.Key, conversation.Message{
						Content: answer, Tokens: 200, Status: stream.Completed, FinishReason: "stop",
						Usage: &conversation.Usage{Prompt: 100, Completion: 200, Total: 300},
					}, conversation.Timing{})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

// BenchmarkHistory measures a page of 50 messages in the middle of a history of 1,000.
func BenchmarkHistory(b *testing.B) {
	s := openBench(b, Options{noSync: true})
	id := benchSession(b, s).ID
	text := strings.Repeat("this and that. ", 60)
	middle := ""
	for i := range 500 {
		begun, err := s.BeginTurn(b.Context(), somebody, conversation.NewTurn{
			SessionID: id, Role: conversation.User, Content: text, Tokens: 1, Waiter: "w",
		})
		if err == nil {
			_, err = s.EndTurn(b.Context(), begun.Key, conversation.Message{Content: text, Status: stream.Completed}, conversation.Timing{})
		}
		if err != nil {
			b.Fatal(err)
		}
		if i == 250 {
			middle = begun.Reply.ID
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		page, err := s.Messages(b.Context(), somebody, id, conversation.MessageQuery{From: middle, Limit: 50})
		if err != nil || len(page.Messages) != 50 {
			b.Fatal(len(page.Messages), err)
		}
	}
}

// BenchmarkUsage measures a usage report of an owner with about 50,000 sessions, the limit of the tier enterprise.
func BenchmarkUsage(b *testing.B) {
	const sessions = 50_000
	s := openBench(b, Options{noSync: true})
	var created sync.WaitGroup
	for range 64 {
		created.Go(func() {
			for range sessions / 64 {
				benchSession(b, s)
			}
		})
	}
	created.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := s.Usage(b.Context(), somebody, 0, 1<<30); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkJournal measures ticks of the journal. In each tick, 1,000 live replies add ten bytes (2.5 tokens) each. One op is one
// segment.
func BenchmarkJournal(b *testing.B) {
	const replies = 1000
	s := openBench(b, Options{noSync: true})
	keys := make([]conversation.TurnKey, replies)
	var begun sync.WaitGroup
	for i := range keys {
		begun.Go(func() {
			turn, err := s.BeginTurn(b.Context(), somebody, conversation.NewTurn{
				SessionID: benchSession(b, s).ID, Role: conversation.User, Content: "x", Tokens: 1, Waiter: "w",
			})
			if err != nil {
				b.Error(err)
			}
			keys[i] = turn.Key
		})
	}
	begun.Wait()
	text := []byte("ten bytes.")
	batch := make([]stream.Segment[conversation.TurnKey], replies)
	b.ReportAllocs()
	b.ResetTimer()
	for offset, n := 0, 0; n < b.N; n, offset = n+replies, offset+len(text) {
		for i := range batch {
			batch[i] = stream.Segment[conversation.TurnKey]{Key: keys[i], Offset: offset, Text: text}
		}
		if err := s.Journal(b.Context(), batch[:min(replies, b.N-n)]); err != nil {
			b.Fatal(err)
		}
	}
}
