package auth

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth/limit"
)

// limitsOf returns Limits for a value of PARLEY_TIERS.
func limitsOf(t *testing.T, tiers string) *Limits {
	t.Helper()
	parsed, err := limit.ParseTiers(tiers)
	if err != nil {
		t.Fatal(err)
	}
	return NewLimits(parsed)
}

// taken sends n frames at once on a socket, and returns the number of admitted frames.
func taken(t *testing.T, s *SocketFrames, n int) (ok int) {
	t.Helper()
	for range n {
		err := s.Take()
		if err == nil {
			ok++
			continue
		}
		refused, is := errors.AsType[*LimitError](err)
		if !is || refused.Decision.Refused != limit.ByFrames || refused.Decision.RetryAfter < 1 || refused.Decision.RetryAfter > 61 {
			t.Fatalf("the error is %v, want a refusal by framesPerMinute", err)
		}
	}
	return ok
}

// TestFrames_SocketOfOneSession_GetsTenthOfLimit floods a socket that may access one session. Other sockets of the key must
// have the rest of the limit.
func TestFrames_SocketOfOneSession_GetsTenthOfLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frames := NewKeys(&fakeStore{}, Options{}).NewFrames(NewLimits(limit.DefaultTiers()))
		user := frames.Open(Principal{KeyID: "key_1", Tier: limit.Free, SessionID: "session_0123456789abcdef"})
		other := frames.Open(Principal{KeyID: "key_1", Tier: limit.Free})
		for range 2 {
			if n := taken(t, user, 5_000); n != 120 {
				t.Errorf("%d frames of the socket were admitted, want 120", n)
			}
			if n := taken(t, other, 5_000); n != 1_080 {
				t.Errorf("%d frames of another socket were admitted, want 1,080", n)
			}
			time.Sleep(time.Minute + time.Second)
		}
	})
}

// TestFrames_Flood_FewLeases sends 10,000 frames at once, and then 3,000 a second for two minutes.
func TestFrames_Flood_FewLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		keys := NewKeys(store, Options{})
		frames := keys.NewFrames(NewLimits(limit.DefaultTiers()))
		one, other := frames.Open(Principal{KeyID: "key_1", Tier: limit.Free}), frames.Open(Principal{KeyID: "key_1", Tier: limit.Free})
		if n := taken(t, one, 5_000) + taken(t, other, 5_000); n != 1_200 {
			t.Errorf("%d frames were admitted at once, want 1,200", n)
		}
		if store.leases > 8 {
			t.Errorf("the flood took %d leases, want 8 at most", store.leases)
		}
		store.leases = 0
		admitted := 0
		for range 122 {
			time.Sleep(time.Second)
			admitted += taken(t, one, 3_000)
		}
		if admitted != 2_400 {
			t.Errorf("%d frames were admitted in the 122 s after the flood, want 2,400", admitted)
		}
		if store.leases > 16 {
			t.Errorf("two minutes of flood took %d leases, want 16 at most", store.leases)
		}
		one.Close()
		other.Close()
		if len(frames.meters) != 0 {
			t.Error("a key without sockets still has a meter")
		}
	})
}

// twoNodes returns a socket of the same key on each of two nodes, with a limit of 600 frames a minute.
func twoNodes(t *testing.T) (sockets []*SocketFrames) {
	t.Helper()
	store, limits := &fakeStore{}, limitsOf(t, `{"free":{"framesPerMinute":600}}`)
	for range 2 {
		sockets = append(sockets, NewKeys(store, Options{}).NewFrames(limits).Open(Principal{KeyID: "key_1", Tier: limit.Free}))
	}
	return sockets
}

// TestFrames_TwoNodes_NeverOverLimit sends bursts of frames at two nodes, with random pauses. In any 60 seconds, the nodes
// together must admit at most the limit.
func TestFrames_TwoNodes_NeverOverLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, random := twoNodes(t), rand.New(rand.NewPCG(1, 2))
		pauses := []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, 55 * time.Second}
		var times []time.Time
		for range 5_000 {
			time.Sleep(pauses[random.IntN(len(pauses))] + time.Duration(random.IntN(1000))*time.Millisecond)
			for range taken(t, nodes[random.IntN(2)], []int{1, 30, 100, 700}[random.IntN(4)]) {
				times = append(times, time.Now())
			}
		}
		for i := range times {
			if last := i + 600; last < len(times) && times[last].Sub(times[i]) <= 60*time.Second {
				t.Fatalf("601 frames were admitted in %v", times[last].Sub(times[i]))
			}
		}
	})
}

// TestFrames_SteadyClient_GetsWholeLimit sends a little less than the limit at two nodes. No frame of a steady client may be
// refused because of leases.
func TestFrames_SteadyClient_GetsWholeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := twoNodes(t)
		for i := range 3_000 {
			time.Sleep(110 * time.Millisecond) // 545 a minute
			if err := nodes[i/7%2].Take(); err != nil {
				t.Fatalf("frame %d of a client below the limit: %v", i, err)
			}
		}
	})
}

func TestFrames_StoreFails_CountsLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		store.fail(errors.New("away"))
		frames := NewKeys(store, Options{}).NewFrames(limitsOf(t, `{"free":{"framesPerMinute":600}}`))
		s := frames.Open(Principal{KeyID: "key_1", Tier: limit.Free})
		admitted := 0
		for range 60_000 {
			time.Sleep(time.Millisecond)
			admitted += taken(t, s, 1)
		}
		if admitted < 300 || admitted > 600 {
			t.Errorf("%d frames were admitted in a minute without the store, want 300 to 600", admitted)
		}
	})
}

func TestFrames_StoreFailsAfterLease_NextFramesAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		frames := NewKeys(store, Options{}).NewFrames(limitsOf(t, `{"free":{"framesPerMinute":600}}`))
		s := frames.Open(Principal{KeyID: "key_1", Tier: limit.Free})
		if n := taken(t, s, 4); n != 4 { // the first lease of a second
			t.Fatalf("%d frames were admitted, want 4", n)
		}
		store.fail(errors.New("away"))
		if n := taken(t, s, 60); n != 10 {
			t.Errorf("%d frames were admitted after the store had failed, want 10, the limit of a second", n)
		}
	})
}
