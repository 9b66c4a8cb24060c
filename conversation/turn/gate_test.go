package turn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
)

// slowStore is a shared store. Its BeginTurn waits for the time takes. Then it returns err, if err is set.
type slowStore struct {
	conversation.Store
	takes         time.Duration
	err           error
	running, most atomic.Int64 // the number of calls of BeginTurn that run now, and the highest number so far
}

func (s *slowStore) BeginTurn(ctx context.Context, o conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	running := s.running.Add(1)
	defer s.running.Add(-1)
	for most := s.most.Load(); running > most && !s.most.CompareAndSwap(most, running); most = s.most.Load() {
	}
	time.Sleep(s.takes)
	if s.err != nil {
		return conversation.TurnStart{}, s.err
	}
	return s.Store.BeginTurn(ctx, o, turn)
}

// sendMany sends a message to each of many new sessions of a node at the same time. It returns the errors of the
// refused sends, and the time until the last turn has begun or the last send was refused.
func sendMany(n *conversationtest.Node, many int) (refused []error, took time.Duration) {
	results := make(chan error, many)
	sessions := make([]string, many)
	for i := range sessions {
		sessions[i] = n.NewSession()
	}
	began := time.Now()
	for _, session := range sessions {
		go func() {
			_, err := n.Send(context.Background(), conversationtest.Message(session, "hello"))
			results <- err
		}()
	}
	for range sessions {
		if err := <-results; err != nil {
			refused = append(refused, err)
		}
	}
	return refused, time.Since(began)
}

var atOnce = conversationtest.ModelFunc(func(_ context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
	write([]byte("A reply."))
	return stream.Result{FinishReason: "stop"}, nil
})

// The store needs 3.5 s for all sends, which is longer than the timeout of a call. Still, no send may be refused.
func TestBegin_StoreBusy_AtMost32CallsNoneRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{takes: 500 * time.Millisecond}
		n := conversationtest.NewCluster(t).Start(atOnce, func(o *service.Options) { store.Store, o.Store = o.Store, store })
		refused, took := sendMany(n, 200)
		if len(refused) > 0 || took > 10*time.Second {
			t.Errorf("%d sends were refused, for example with %v, after %v", len(refused), append(refused, nil)[0], took)
		}
		if most := store.most.Load(); most > 32 {
			t.Errorf("%d calls of BeginTurn ran at the same time, want at most 32", most)
		}
	})
}

// The store does not respond. Sends that wait behind the running calls must be refused when those calls time out, not
// after another timeout.
func TestBegin_StoreSilent_AllRefusedWithin2s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{takes: 1800 * time.Millisecond, err: conversation.ErrStoreTimeout}
		n := conversationtest.NewCluster(t).Start(atOnce, func(o *service.Options) { store.Store, o.Store = o.Store, store })
		time.Sleep(time.Minute)
		refused, took := sendMany(n, 200)
		busy := 0
		for _, err := range refused {
			if errors.Is(err, conversation.ErrStoreBusy) {
				busy++
			}
		}
		if len(refused) != 200 || took > 2*time.Second || busy != 200-32 {
			t.Errorf("%d of 200 sends were refused within %v, %d of them without a call of the store; want 200 within 2 s, 168 of them without a call", len(refused), took, busy)
		}
	})
}
