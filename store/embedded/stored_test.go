package embedded

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

// verifyStored compares storedBucket with a count of all sessions. Sessions that expired in an earlier hour may be missing.
func (w *writing) verifyStored() error {
	want, got := make(map[string]storedCount), make(map[string]storedCount)
	current := func(hour []byte) bool { return hourOf(hour[len(hour)-hourLength:]) >= momentHour(w.now) }
	err := w.bucket(sessionsBucket).ForEach(func(key, value []byte) error {
		owner, id, _ := cutOwner(key)
		session, err := readSession(value, string(id))
		if err != nil {
			return err
		}
		bytes, err := w.bytesOf(ref{owner, session.ID}, session.MessageCount)
		if hour := usageKey(hourAt{owner, momentHour(session.ExpiresAt)}); current(hour) {
			want[string(hour)] = want[string(hour)].plus(storedCount{1, bytes + int64(len(session.Metadata)+len(session.Instructions))})
		}
		return err
	})
	if err != nil {
		return err
	}
	err = w.bucket(storedBucket).ForEach(func(hour, value []byte) (err error) {
		if current(hour) {
			got[string(hour)], err = readStored(value)
		}
		return err
	})
	if err == nil && !maps.Equal(got, want) {
		err = fmt.Errorf("the counts of sessions and bytes are %v, want %v", got, want)
	}
	return err
}

// withQuotas returns the admission of a request by an account with these quotas.
func withQuotas(t *testing.T, quotas limit.TierLimits) *auth.Admission {
	t.Helper()
	quotas.RequestsPerMinute, quotas.TokensPerMinute = 1_000_000, 1_000_000
	return &auth.Admission{Principal: auth.Principal{Account: somebody.Account, Mode: string(somebody.Mode)}, Limits: quotas}
}

// TestQuotas_ExpiredSessions_DoNotCount checks that expired sessions do not count, before and after their removal.
func TestQuotas_ExpiredSessions_DoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		create := func() error {
			ctx := auth.WithAdmission(t.Context(), withQuotas(t, limit.TierLimits{ActiveSessions: 3, StoredBytes: 15}))
			_, err := s.CreateSession(ctx, somebody, conversation.NewSession{
				UserID: "user_0123456789abcdef", Metadata: []byte(`{"a":1}`)[:5], Context: conversation.DefaultContextConfig,
			})
			return err
		}
		for range 3 {
			must(t, create())
		}
		if create() == nil {
			t.Error("the fourth session was created, want a refusal")
		}
		time.Sleep(24 * time.Hour)
		if used, err := s.Usage(t.Context(), somebody, 0, 1<<30); err != nil || used.Active != 0 {
			t.Errorf("%d active sessions, %v", used.Active, err)
		}
		_, _, err := s.RemoveExpired(t.Context())
		must(t, err)
		must(t, create())
		verify(t, s)
		time.Sleep(20 * time.Minute)
		must(t, create())
		must(t, create())
		time.Sleep(23*time.Hour + 40*time.Minute) // one session has expired, and is not removed
		quotas := withQuotas(t, limit.TierLimits{ActiveSessions: 3})
		_, err = s.CreateSession(auth.WithAdmission(t.Context(), quotas), somebody, conversation.NewSession{
			UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig,
		})
		must(t, err)
		verify(t, s)
	})
}

// TestOpen_FileWithoutCounts_SessionsCounted removes the bucket that earlier versions did not have. Open must count all
// sessions again.
func TestOpen_FileWithoutCounts_SessionsCounted(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	for range 3 {
		begun := beginTurn(t, s, newSession(t, s).ID, "hello")
		_, err := s.EndTurn(t.Context(), begun.Key, completed("good day"), conversation.Timing{})
		must(t, err)
	}
	closeStore(t, s)
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(storedBucket)) }))
	must(t, db.Close())
	s = open(t, path)
	verify(t, s)
	used, err := s.Usage(t.Context(), somebody, 0, 1<<30)
	must(t, err)
	if used.StoredBytes != 3*13 {
		t.Errorf("%d bytes, want 39", used.StoredBytes)
	}
}

// TestStored_MissingCounts_NeverNegative removes the counts, as if an earlier version had used the file for some time. Then it
// deletes a session that has bytes.
func TestStored_MissingCounts_NeverNegative(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	session, other := newSession(t, s), newSession(t, s)
	beginTurn(t, s, session.ID, "hello")
	must(t, s.run(t.Context(), func(w *writing) error {
		return w.addStored(somebody, session.ExpiresAt, storedCount{-2, -3})
	}))
	_, err := s.DeleteSession(t.Context(), somebody, session.ID)
	must(t, err)
	beginTurn(t, s, other.ID, "hi")
	used, err := s.Usage(t.Context(), somebody, 0, 1<<30)
	must(t, err)
	if used.StoredBytes != 2 {
		t.Errorf("%d bytes, want 2", used.StoredBytes)
	}
}
