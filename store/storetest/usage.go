package storetest

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/stream"
)

// timing is the timing of all replies in these tests.
var timing = conversation.Timing{FirstToken: 120 * time.Millisecond, Duration: 1500 * time.Millisecond}

func usageTests() []test {
	return []test{
		{"new owner has no usage", usageOfNothing},
		{"session counts in the hour of its creation", usageOfCreation},
		{"turn counts at begin and end", usageOfTurn},
		{"each kind of ending counts", usageOfEndings},
		{"session time ends at the last activity", usageOfTime},
		{"calls without effect do not count", usageOfNoEffect},
		{"usage outlives its session", usageOutlives},
		{"live turn of a deleted session settles once", usageOfDeleted},
		{"concurrent ends of a deleted turn count once", usageOfDeletedAtOnce},
		{"usage is per owner", usageOfOthers},
		{"admitted requests count", usageOfRequests},
		{"every concurrent turn counts", usageAtOnce},
	}
}

// used returns the sum of the owner's usage of yesterday, today and tomorrow.
func (s *subject) used(t *testing.T) (sum usage.Bucket, existing, active int) {
	t.Helper()
	now := usage.HourOf(time.Now().UnixMilli())
	used, err := s.store.Usage(s.ctx, s.owner, now-24, now+24)
	must(t, err, "Usage")
	for i := range used.Hours {
		if i > 0 && used.Hours[i].Hour <= used.Hours[i-1].Hour {
			t.Errorf("hour %d comes after hour %d in the report", used.Hours[i].Hour, used.Hours[i-1].Hour)
		}
		sum.Add(&used.Hours[i].Bucket)
		existing += used.Hours[i].Existing
	}
	return sum, existing, active + used.Active
}

// wantUsed checks the owner's usage except for the session time, which has its own test.
func (s *subject) wantUsed(t *testing.T, what string, want usage.Bucket, sessions int) {
	t.Helper()
	got, existing, active := s.used(t)
	got.SessionTime = 0
	sameBucket(t, what, &got, &want)
	same(t, what+": sessions that exist, by hour and in all", [2]int{existing, active}, [2]int{sessions, sessions})
}

func sameBucket(t *testing.T, what string, got, want *usage.Bucket) {
	t.Helper()
	same(t, what, maps.Collect(got.All()), maps.Collect(want.All()))
}

// ofTurns returns the usage of n turns of a question and an answer. It does not include the usage of sessions.
func ofTurns(n int64) usage.Bucket {
	b := usage.Bucket{
		UserMessages: n, AssistantMessages: n, PromptTokens: 17 * n, CompletionTokens: 5 * n, Completed: n,
	}
	for range n {
		b.FirstToken.Observe(120)
		b.Duration.Observe(1500)
	}
	return b
}

func usageOfNothing(t *testing.T, s *subject) {
	before := usage.HourOf(time.Now().UnixMilli())
	used, err := s.store.Usage(s.ctx, s.owner, 0, 1<<20)
	must(t, err, "Usage")
	if used.Now < before || used.Now > before+1 {
		t.Errorf("the hour is %d, want %d", used.Now, before)
	}
	same(t, "the usage", used, conversation.UsageSpan{Now: used.Now})
}

func usageOfCreation(t *testing.T, s *subject) {
	session := s.create(t, plain())
	hour := usage.HourOf(int64(session.CreatedAt))
	for _, test := range []struct {
		from, to usage.Hour
		hours    int
	}{{hour, hour + 1, 1}, {hour - 5, hour, 0}, {hour + 1, hour + 5, 0}, {hour - 100, hour + 100, 1}, {hour, hour, 0}} {
		used, err := s.store.Usage(s.ctx, s.owner, test.from, test.to)
		must(t, err, "Usage")
		same(t, "the active sessions", used.Active, 1)
		if len(used.Hours) != test.hours {
			t.Errorf("from %d to %d: %d hours, want %d", test.from-hour, test.to-hour, len(used.Hours), test.hours)
		}
		for i := range used.Hours {
			same(t, "the hour", used.Hours[i].Hour, hour)
			same(t, "the existing sessions of the hour", used.Hours[i].Existing, 1)
			sameBucket(t, "the bucket", &used.Hours[i].Bucket, &usage.Bucket{Sessions: 1})
		}
	}
}

func usageOfTurn(t *testing.T, s *subject) {
	session := s.create(t, plain())
	turn := question(session.ID, "hello")
	turn.Role = conversation.System
	begun := s.begin(t, turn)
	s.wantUsed(t, "the usage of a turn that began", usage.Bucket{Sessions: 1, SystemMessages: 1, AssistantMessages: 1}, 1)
	s.end(t, begun.Key, answer("good day"))
	want := ofTurns(1)
	want.Sessions, want.UserMessages, want.SystemMessages = 1, 0, 1
	s.wantUsed(t, "the usage of a turn that ended", want, 1)
	s.exchange(t, session.ID, "and now?")
	want.Add(new(ofTurns(1)))
	s.wantUsed(t, "the usage of two turns", want, 1)
}

func usageOfEndings(t *testing.T, s *subject) {
	session := s.create(t, plain())
	for _, reply := range []conversation.Message{
		{Status: stream.Completed}, {Status: stream.Cancelled}, {Status: stream.Failed}, {Status: stream.Interrupted},
		{Status: stream.Failed, Usage: &conversation.Usage{Prompt: 3, Completion: 4, Total: 7}},
	} {
		begun := s.begin(t, question(session.ID, "hello"))
		ended, err := s.store.EndTurn(s.ctx, begun.Key, reply, conversation.Timing{})
		must(t, err, "EndTurn")
		same(t, "the status", ended.Status, reply.Status)
	}
	s.wantUsed(t, "the usage of five endings", usage.Bucket{
		Sessions: 1, UserMessages: 5, AssistantMessages: 5, PromptTokens: 3, CompletionTokens: 4,
		Completed: 1, Cancelled: 1, Failed: 2, Interrupted: 1,
	}, 1)
}

func usageOfTime(t *testing.T, s *subject) {
	want := make(map[usage.Hour]int64)
	for range 3 {
		created := s.create(t, plain())
		for range 3 {
			s.exchange(t, created.ID, "hello")
		}
		after := s.session(t, created.ID)
		want[usage.HourOf(int64(created.CreatedAt))] += int64(after.LastActivity - created.CreatedAt)
	}
	now := usage.HourOf(time.Now().UnixMilli())
	used, err := s.store.Usage(s.ctx, s.owner, now-24, now+24)
	must(t, err, "Usage")
	for _, h := range used.Hours {
		same(t, "the time that the sessions of an hour lasted", h.Bucket.SessionTime, want[h.Hour])
	}
}

func usageOfNoEffect(t *testing.T, s *subject) {
	idempotency := &conversation.Idempotency{Key: "once"}
	asked := plain()
	asked.Idempotency = idempotency
	session := s.create(t, asked)
	_, err := s.store.CreateSession(s.ctx, s.owner, asked)
	must(t, err, "CreateSession again")

	turn := question(session.ID, "hello")
	turn.Idempotency = &conversation.Idempotency{Key: "the turn"}
	begun := s.begin(t, turn)
	_, err = s.store.BeginTurn(s.ctx, s.owner, turn)
	must(t, err, "BeginTurn again")
	waiting := question(session.ID, "waiting")
	s.queue(t, waiting)
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, waiting.Waiter), "LeaveQueue")
	rejected := question(session.ID, "rejected")
	rejected.OnBusy = conversation.Reject
	_, err = s.store.BeginTurn(s.ctx, s.owner, rejected)
	wantError(t, "BeginTurn of a busy session", err, conversation.ErrSessionBusy)
	forged := begun.Key
	forged.Fence++
	_, err = s.store.EndTurn(s.ctx, forged, answer("forged"), timing)
	wantError(t, "EndTurn with another fence", err, conversation.ErrFenced)
	s.end(t, begun.Key, answer("good day"))
	_, err = s.store.EndTurn(s.ctx, begun.Key, answer("again"), timing)
	wantError(t, "EndTurn again", err, conversation.ErrFenced)

	s.overflows(t, session.ID, 1_000_000)
	p, few := s.key(t), limit.TierLimits{RequestsPerMinute: 2, TokensPerMinute: 1}
	ctx, _ := s.request(p, few)
	first, err := s.store.BeginTurn(ctx, s.owner, question(s.create(t, plain()).ID, "takes all tokens"))
	must(t, err, "BeginTurn")
	for _, by := range []limit.Kind{limit.ByTokens, limit.ByRequests} {
		ctx, _ := s.request(p, few)
		_, err = s.store.BeginTurn(ctx, s.owner, question(session.ID, "refused"))
		refused(t, "BeginTurn over the limit", err, by)
	}
	s.end(t, first.Key, answer("good day"))
	want := ofTurns(2)
	want.Sessions, want.Requests = 2, 2 // the call that the token limit refused still counts as a request
	s.wantUsed(t, "the usage", want, 2)
}

func usageOutlives(t *testing.T, s *subject) {
	deleted, cleared := s.create(t, plain()), s.create(t, plain())
	s.exchange(t, deleted.ID, "hello")
	s.exchange(t, cleared.ID, "hello")
	before, _, _ := s.used(t)
	_, err := s.store.ClearMessages(s.ctx, s.owner, cleared.ID, conversation.RandomText(16))
	must(t, err, "ClearMessages")
	_, err = s.store.DeleteSession(s.ctx, s.owner, deleted.ID)
	must(t, err, "DeleteSession")
	after, existing, active := s.used(t)
	sameBucket(t, "the usage afterwards", &after, &before)
	same(t, "the existing and active sessions", [2]int{existing, active}, [2]int{1, 1})
}

func usageOfDeleted(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	_, err := s.store.DeleteSession(s.ctx, s.owner, session.ID)
	must(t, err, "DeleteSession")
	want := usage.Bucket{Sessions: 1, UserMessages: 1, AssistantMessages: 1}
	s.wantUsed(t, "the usage before the turn ends", want, 0)

	fenced, foreign, unknown := begun.Key, begun.Key, begun.Key
	fenced.Fence++
	foreign.Owner.Account += "x"
	unknown.ReplyID = "msg_0000000000000000"
	for _, key := range []conversation.TurnKey{fenced, foreign, unknown} {
		_, err = s.store.EndTurn(s.ctx, key, answer("forged"), timing)
		wantError(t, "EndTurn by another key", err, conversation.ErrSessionNotFound)
	}
	n, err := s.store.EndOrphans(s.ctx, func(string) int { return 1 })
	must(t, err, "EndOrphans")
	same(t, "the number of orphans", n, 0)
	s.wantUsed(t, "the usage after calls with wrong keys", want, 0)
	s.as(foreign.Owner).wantUsed(t, "the usage of the other owner", usage.Bucket{}, 0)

	want = ofTurns(1)
	want.Sessions = 1
	for range 3 {
		_, err = s.store.EndTurn(s.ctx, begun.Key, answer("too late"), timing)
		wantError(t, "EndTurn", err, conversation.ErrSessionNotFound)
		s.wantUsed(t, "the usage after the turn's end", want, 0)
	}
}

func usageOfDeletedAtOnce(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := s.store.DeleteSession(s.ctx, s.owner, session.ID); err != nil {
			t.Errorf("DeleteSession: %v", err)
		}
	})
	for range 8 {
		all.Go(func() {
			_, err := s.store.EndTurn(s.ctx, begun.Key, answer("who is first?"), timing)
			if err != nil && !errors.Is(err, conversation.ErrSessionNotFound) && !errors.Is(err, conversation.ErrFenced) {
				t.Errorf("EndTurn: %v", err)
			}
		})
	}
	all.Wait()
	want := ofTurns(1)
	want.Sessions = 1
	s.wantUsed(t, "the usage", want, 0)
}

func usageOfOthers(t *testing.T, s *subject) {
	owners := []conversation.Owner{
		s.owner,
		{Account: s.owner.Account, Mode: conversation.Test},
		{Account: s.owner.Account + "live", Mode: conversation.Live},
		{Account: s.owner.Account + "\x00", Mode: conversation.Live},
	}
	for i, owner := range owners {
		other := s.as(owner)
		for range i + 1 {
			other.exchange(t, other.create(t, plain()).ID, "hello")
		}
	}
	for i, owner := range owners {
		n := i + 1
		want := ofTurns(int64(n))
		want.Sessions = int64(n)
		s.as(owner).wantUsed(t, fmt.Sprintf("the usage of %q", owner), want, n)
	}
}

func usageOfRequests(t *testing.T, s *subject) {
	few := limit.TierLimits{RequestsPerMinute: 3, TokensPerMinute: 1}
	live, test := s, s.as(conversation.Owner{Account: s.owner.Account, Mode: conversation.Test})
	for i, o := range []*subject{live, test} {
		p := o.key(t)
		for range i + 2 {
			o.admit(t, p, few)
		}
		o.wantUsed(t, "the usage of requests", usage.Bucket{Requests: int64(i + 2)}, 0)
	}
	ctx, _ := test.request(test.key(t), few)
	refused(t, "Admit", test.keys.Admit(ctx), limit.ByRequests)
	test.wantUsed(t, "the usage after a refused request", usage.Bucket{Requests: 3}, 0)

	now := usage.HourOf(time.Now().UnixMilli())
	ctx, _ = live.request(live.key(t), few)
	used, err := s.store.Usage(ctx, s.owner, now-1, now+2)
	must(t, err, "Usage")
	var sum usage.Bucket
	for i := range used.Hours {
		sum.Add(&used.Hours[i].Bucket)
	}
	same(t, "the requests, including the report", sum.Requests, 3)
	ctx, _ = live.request(live.key(t), few)
	_, err = s.store.Usage(ctx, s.owner, now-1, now+2)
	refused(t, "Usage", err, limit.ByRequests)
}

func usageAtOnce(t *testing.T, s *subject) {
	const sessions, turns = 8, 5
	p := s.key(t)
	var all sync.WaitGroup
	for range sessions {
		all.Go(func() {
			made, err := s.store.CreateSession(s.ctx, s.owner, plain())
			for range turns {
				var begun conversation.TurnStart
				if err == nil {
					begun, err = s.store.BeginTurn(s.ctx, s.owner, question(made.Session.ID, "hello"))
				}
				if err == nil {
					_, err = s.store.EndTurn(s.ctx, begun.Key, answer("good day"), timing)
				}
				if err == nil {
					ctx, _ := s.request(p, smallLimits)
					_, err = s.store.Session(ctx, s.owner, made.Session.ID)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want := ofTurns(sessions * turns)
	want.Sessions, want.Requests = sessions, sessions*turns
	s.wantUsed(t, "the usage", want, sessions)
}
