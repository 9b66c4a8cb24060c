package redis

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/stream"
)

// TestJournal_Expired_NotRecreated writes to a journal near its expiry, and after its expiry.
func TestJournal_Expired_NotRecreated(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	key := liveTurn(t, s, newOwner())
	name := journalKey(tagOfOwner(key.Owner), key.SessionID, key.Fence)
	text := func() string { return s.db.Get(t.Context(), name).Val() }
	known := func() *journalled {
		s.journal.mu.Lock()
		defer s.journal.mu.Unlock()
		return s.journal.atLocked(&key)
	}
	journalText(t, s, key, 0, "first")
	if got := text(); got != "first" {
		t.Fatalf("the journal is %q", got)
	}
	if now := time.Now(); !known().safe(now.Add(journalOutlives-journalMargin-time.Minute)) || known().safe(now.Add(journalOutlives)) {
		t.Errorf("SETRANGE is safe until %v, want more than %v from now", known().until, journalOutlives-journalMargin-time.Minute)
	}
	must(t, s.db.PExpire(t.Context(), name, journalMargin).Err()) // as if the session were about to expire
	known().until = time.Now()                                    // as if this process had been suspended
	journalText(t, s, key, 5, ", second")
	if got := text(); got != "first, second" || known().safe(time.Now()) {
		t.Errorf("shortly before its expiry, the journal is %q, and SETRANGE is safe until %v", got, known().until)
	}
	must(t, s.db.Del(t.Context(), name).Err())
	for _, offset := range []int{13, 0} {
		journalText(t, s, key, offset, "late")
	}
	if n := s.db.Exists(t.Context(), name).Val(); n != 0 {
		t.Errorf("an expired journal was created again: %q", text())
	}
	s.journal.sweep(time.Now())
	if len(s.journal.known) != 0 {
		t.Error("sweep has not removed the entry of an expired journal")
	}
}

// TestJournal_OffsetPastEnd_NotWritten writes at an offset past the end of the journal: SETRANGE would fill the gap with NUL
// bytes.
func TestJournal_OffsetPastEnd_NotWritten(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := open(t, server.URL)
	key, other := liveTurn(t, s, newOwner()), liveTurn(t, s, newOwner())
	name := journalKey(tagOfOwner(key.Owner), key.SessionID, key.Fence)
	journalText(t, s, key, 0, "all of it")
	// Simulate a fail-over that loses the end of the text.
	server.Do("REPLICAOF", "127.0.0.1", "1")
	batch := []stream.Segment[conversation.TurnKey]{segment(key, 9, ", and more"), segment(other, 0, "other")}
	wantError(t, "Journal on a read-only server", s.Journal(t.Context(), batch), conversation.ErrUnavailable)
	server.Do("REPLICAOF", "NO", "ONE")
	must(t, s.db.Do(t.Context(), "set", name, "all", "keepttl").Err())
	must(t, s.Journal(t.Context(), batch))
	if got := s.db.Get(t.Context(), name).Val(); got != "all" {
		t.Errorf("the journal is %q, want it unchanged", got)
	}
	if g := poll(t, s, followedReply(other, 0))[0]; string(g.Text) != "other" {
		t.Errorf("the other reply's journal is %q", g.Text)
	}
}

func TestJournal_Tick_OneRoundTrip(t *testing.T) {
	t.Parallel()
	url := shared.Start(t)
	writer, _ := join(t, url)
	var batch []stream.Segment[conversation.TurnKey]
	const replies, nodes = 50, 3 // each reply is followed by each node
	for range replies {
		batch = append(batch, segment(liveTurn(t, writer, newOwner()), 0, "some text"))
	}
	for node := range nodes {
		for _, b := range batch {
			writer.followers.add(b.Key.SessionID, fmt.Sprint("node", node), time.Now().Add(time.Hour))
		}
	}
	suspend(writer, true) // because its heartbeats would be counted
	must(t, writer.removeStale(t.Context()))
	var c trips
	writer.db.AddHook(&c)
	const ticks = 20
	for range ticks {
		must(t, writer.Journal(t.Context(), batch))
	}
	if n, commands := c.n.Load(), c.commands.Load(); n != ticks || commands != ticks*(replies+nodes) {
		t.Errorf("%d ticks of %d replies with %d followers: %d round trips, %d commands", ticks, replies, nodes, n, commands)
	}
}

// TestJournal_ManyReplies_AllocatesNothingForEach counts the allocations of a tick of 200 replies, without those of the round trip.
func TestJournal_ManyReplies_AllocatesNothingForEach(t *testing.T) {
	s := newStore(t)
	owner := newOwner()
	allocations := func(replies int) float64 {
		batch := make([]stream.Segment[conversation.TurnKey], replies)
		for i := range batch {
			batch[i] = segment(liveTurn(t, s, owner), 0, "some text")
		}
		return testing.AllocsPerRun(20, func() { must(t, s.Journal(t.Context(), batch)) })
	}
	const replies = 200
	each := (allocations(replies) - allocations(1)) / (replies - 1)
	t.Logf("%.3f allocations for each reply", each)
	if each > 0.5 { // the race detector empties pools at random
		t.Errorf("%.3f allocations for each reply, want none", each)
	}
}

// TestJournal_SeveralSegmentsOfReply_AllWritten writes more segments of a reply than the reply has commands in use, at several ticks.
func TestJournal_SeveralSegmentsOfReply_AllWritten(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	key := liveTurn(t, s, newOwner())
	text := ""
	for tick := range 3 {
		var batch []stream.Segment[conversation.TurnKey]
		for part := range 3 {
			batch = append(batch, segment(key, len(text), fmt.Sprintf("tick %d, part %d; ", tick, part)))
			text += string(batch[part].Text)
		}
		must(t, s.Journal(t.Context(), batch))
	}
	same(t, "the journal", s.db.Get(t.Context(), journalKey(tagOfOwner(key.Owner), key.SessionID, key.Fence)).Val(), text)
}

// cpu returns the CPU time that a server has used, in µs.
func cpu(t testing.TB, server *redistest.Server) float64 {
	t.Helper()
	total := 0.0
	lines := bufio.NewScanner(strings.NewReader(server.Do("INFO", "cpu")))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			var seconds float64
			_, _ = fmt.Sscan(value, &seconds)
			total += seconds * 1e6
		}
	}
	return total
}

// BenchmarkJournal measures Journal for 1,000 live replies. At each tick, each reply has 2.5 new tokens of 4 bytes. It runs
// without followers, and with one follower. It reports the CPU time of Redis and the elapsed time for each token. The goal is 1
// µs of CPU time of Redis for each token.
func BenchmarkJournal(b *testing.B) {
	for _, followed := range []bool{false, true} {
		b.Run(fmt.Sprintf("followed=%v", followed), func(b *testing.B) {
			server := redistest.Single(b)
			s, err := Open(b.Context(), server.URL)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			const replies, tokens = 1000, 2.5 // tokens of each reply at each tick
			batch := make([]stream.Segment[conversation.TurnKey], replies)
			owner := newOwner()
			for i := range batch {
				batch[i] = segment(liveTurn(b, s, owner), 0, "ten bytes.")
				if followed {
					s.followers.add(batch[i].Key.SessionID, "another", time.Now().Add(time.Hour))
				}
			}
			tick := func() {
				if err := s.Journal(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				for i := range batch {
					batch[i].Offset += len(batch[i].Text)
				}
			}
			tick() // the first call also checks that the journals exist
			before := cpu(b, server)
			for b.Loop() {
				tick()
			}
			b.ReportMetric((cpu(b, server)-before)/float64(b.N)/replies/tokens, "redis-µs/token")
			b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/replies/tokens, "µs/token")
		})
	}
}
