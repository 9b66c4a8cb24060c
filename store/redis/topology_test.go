package redis

import (
	"fmt"
	"slices"
	"testing"

	"parley/auth"
	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/store/storetest"
)

// TestStore_Cluster runs the suite storetest on a Cluster, as the Redis user that web/guides/security.md describes.
// Durable operations wait for replicas.
func TestStore_Cluster(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterWithReplicas(t)
	servers := append(slices.Clone(c.Masters), c.Replicas...)
	url := userOfGuide(t, c.URL+"?waitReplicas=1", servers)
	storetest.Run(t, func(t *testing.T) storetest.Backend { return backend(open(t, url)) })
	wantNothingDenied(t, servers, url)
}

func TestPing_Cluster_OneMasterDown_Unavailable(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	s := open(t, c.URL)
	for i, master := range c.Masters {
		must(t, s.Ping(t.Context()))
		master.Do("CONFIG", "SET", "maxmemory", "1")
		wantError(t, fmt.Sprintf("Ping while master %d is out of memory", i), s.Ping(t.Context()), conversation.ErrUnavailable)
		master.Do("CONFIG", "SET", "maxmemory", "0")
	}
	c.Masters[2].Kill()
	wantError(t, "Ping after a master was killed", s.Ping(t.Context()), conversation.ErrUnavailable)
}

func TestAdmit_SentinelFailOver_AdmitsAgain(t *testing.T) {
	t.Parallel()
	w := redistest.Sentinel(t)
	s := open(t, w.URL)
	owner := auth.Owner{Account: newAccount(), Mode: auth.Live}
	p := newKey(t, s, owner)
	w.Master.Do("WAIT", "1", "1000")
	w.Master.Kill()
	_, err := admit(t, s, p)
	wantError(t, "Admit after the master was killed", err, conversation.ErrUnavailable)
	w.AwaitFailover()
	_, err = admit(t, s, p)
	must(t, err)
}
