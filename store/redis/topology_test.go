package redis

import (
	"testing"

	"parley/auth"
	"parley/store/redis/redistest"
	"parley/store/storetest"
)

func TestStoreOnACluster(t *testing.T) {
	t.Parallel()
	url := redistest.Cluster(t).URL
	storetest.Run(t, func(t *testing.T) storetest.Backend { return backend(open(t, url)) })
}

func TestAFailoverIsHealedWithoutARestart(t *testing.T) {
	t.Parallel()
	w := redistest.Sentinel(t)
	s := open(t, w.URL)
	owner := auth.Owner{Account: newAccount(), Mode: auth.Live}
	p := newKey(t, s, owner)
	w.Master.Do("WAIT", "1", "1000")
	w.Master.Kill()
	_, err := admit(t, s, p)
	t.Log(err)
	w.AwaitFailover()
	_, err = admit(t, s, p)
	must(t, err)
}
