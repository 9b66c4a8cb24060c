package redis

import (
	"errors"
	"slices"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/store/redis/redistest"
)

// openSocket opens a socket on a node, with a quota.
func openSocket(t *testing.T, s *Store, owner auth.Owner, quota int64) (close func(), err error) {
	t.Helper()
	limits := limit.TierLimits{RequestsPerMinute: 1_000_000, TokensPerMinute: 1, Sockets: quota}
	a := &auth.Admission{Principal: auth.Principal{Account: owner.Account, Mode: owner.Mode}, Limits: limits}
	return s.OpenSocket(auth.WithAdmission(t.Context(), a), owner)
}

// wantFull fails the test unless the owner has used up its quota of sockets.
func wantFull(t *testing.T, when string, s *Store, owner auth.Owner, quota int64) {
	t.Helper()
	_, err := openSocket(t, s, owner, quota)
	if full := new(auth.QuotaError); !errors.As(err, &full) || full.Used != quota {
		t.Errorf("%s: error %v, want %d used sockets", when, err, quota)
	}
}

// awaitRoom waits until a node may open another socket, and opens it. It returns the waiting time, and a function that closes
// the socket.
func awaitRoom(t *testing.T, s *Store, owner auth.Owner, quota int64) (took time.Duration, end func()) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		end, err := openSocket(t, s, owner, quota)
		if err == nil {
			return time.Since(began), end
		}
		if time.Since(began) > time.Minute {
			t.Fatal("the quota is still used up: ", err)
		}
	}
}

// twoNodes returns two stores on one Redis server. lease is the lease of their sockets.
func twoNodes(t *testing.T, lease time.Duration) (a, b *Store, owner auth.Owner) {
	t.Helper()
	server := redistest.Single(t)
	a, b = open(t, server.URL), open(t, server.URL)
	for _, s := range []*Store{a, b} {
		s.sockets.lease, s.sockets.renewal = lease, lease/3
	}
	return a, b, auth.Owner{Account: newAccount(), Mode: auth.Live}
}

func TestOpenSocket_TwoNodes_ShareQuota(t *testing.T) {
	a, b, owner := twoNodes(t, time.Minute)
	endA, err := openSocket(t, a, owner, 2)
	must(t, err)
	_, err = openSocket(t, b, owner, 2)
	must(t, err)
	wantFull(t, "node a", a, owner, 2)
	wantFull(t, "node b", b, owner, 2)
	endA()
	_, err = openSocket(t, b, owner, 2)
	must(t, err)
	wantFull(t, "node a, after node b took the place", a, owner, 2)
}

// In TestOpenSocket_NodeGone_PlacesFreeAfterLease, node a renews no lease, as if kill -9 had ended it. Node b renews the lease
// of its own socket.
func TestOpenSocket_NodeGone_PlacesFreeAfterLease(t *testing.T) {
	t.Parallel()
	a, b, owner := twoNodes(t, 6*time.Second)
	must(t, b.Join(t.Context(), func(string) {}))
	for _, s := range []*Store{a, a, b} {
		_, err := openSocket(t, s, owner, 3)
		must(t, err)
	}
	wantFull(t, "just after the node has stopped", b, owner, 3)
	took, end := awaitRoom(t, b, owner, 3)
	t.Logf("with a lease of %v, the sockets stopped counting after %v", b.sockets.lease, took)
	counts := b.db.HKeys(t.Context(), socketsKey(ownerTag(owner))).Val()
	if !slices.Equal(counts, []string{b.node}) {
		t.Errorf("Redis has counts of the nodes %q, want only %q", counts, b.node)
	}
	end()
	if ttl := b.db.PTTL(t.Context(), socketsKey(ownerTag(owner))).Val(); ttl <= 0 || ttl > b.sockets.lease {
		t.Errorf("the counts expire in %v, want at most the lease", ttl)
	}
}

func TestRenew_EachSecond_SocketsStayCounted(t *testing.T) {
	t.Parallel()
	a, b, owner := twoNodes(t, 6*time.Second)
	must(t, a.Join(t.Context(), func(string) {}))
	_, err := openSocket(t, a, owner, 1)
	must(t, err)
	for began := time.Now(); time.Since(began) < a.sockets.lease+time.Second; time.Sleep(200 * time.Millisecond) {
		wantFull(t, "while the node renews its lease", b, owner, 1)
	}
	must(t, a.db.Del(t.Context(), socketsKey(ownerTag(owner))).Err()) // as after a lost write, or an outage longer than the lease
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if n := a.db.HLen(t.Context(), socketsKey(ownerTag(owner))).Val(); n == 1 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("the node did not count its socket again")
		}
	}
	wantFull(t, "after the node has counted its socket again", b, owner, 1)
}

// TestSetSockets_LateRenewal_ClosedSocketNotCounted runs the scripts of a node in the wrong order.
func TestSetSockets_LateRenewal_ClosedSocketNotCounted(t *testing.T) {
	a, b, owner := twoNodes(t, time.Minute)
	set := func(change, count int64) {
		t.Helper()
		must(t, a.setSockets(t.Context(), []countOf{{owner, count, change}})[0])
	}
	set(7, 0) // the last socket has closed
	set(6, 1) // a renewal that was sent before
	end, err := openSocket(t, b, owner, 1)
	must(t, err)
	end()

	a.sockets.change = 4 // the script of the new socket arrives after a change that already includes the socket
	set(8, 1)
	_, err = openSocket(t, a, owner, 1)
	must(t, err)
	wantFull(t, "after the late script", b, owner, 1)
}

// TestOpenSocket_ReplyLost_CountCorrected loses the reply of the script, so that Redis has counted a socket that did not open.
func TestOpenSocket_ReplyLost_CountCorrected(t *testing.T) {
	a, b, owner := twoNodes(t, time.Minute)
	end, err := openSocket(t, a, owner, 1) // loads the script
	must(t, err)
	end()
	tap(a).replyLost.Store(openSocketScript)
	if _, err := openSocket(t, a, owner, 1); err == nil {
		t.Fatal("OpenSocket returned no error after a lost reply")
	}
	a.sendSockets() // renew calls this every second
	_, err = openSocket(t, b, owner, 1)
	must(t, err)
}
