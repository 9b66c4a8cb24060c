package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"parley/auth"
	"parley/auth/limit"
)

func socketTests() []test {
	return []test{
		{"open sockets are limited by the quota", socketQuota},
		{"concurrent sockets never exceed the quota", racingSockets},
		{"opening a socket admits its request", socketAdmission},
	}
}

// openWithin opens a socket in a handshake by an account with this quota of sockets.
func (s *subject) openWithin(quota int64, owner auth.Owner) (close func(), err error) {
	p := auth.Principal{Account: owner.Account, Mode: owner.Mode} // the declared key, which always works
	ctx, _ := s.request(p, limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 1, Sockets: quota})
	return s.keys.OpenSocket(ctx, owner)
}

func socketQuota(t *testing.T, s *subject) {
	full := auth.QuotaError{Quota: limit.QuotaSockets, Used: 3, Limit: 3}
	var closers []func()
	for range 3 {
		end, err := s.openWithin(3, s.keyOwner())
		must(t, err, "OpenSocket")
		closers = append(closers, end)
	}
	for range 2 {
		_, err := s.openWithin(3, s.keyOwner())
		wantQuotaError(t, err, full)
	}
	for _, other := range []auth.Owner{{Account: s.owner.Account, Mode: auth.Test}, {Account: s.owner.Account + "2", Mode: auth.Live}} {
		end, err := s.openWithin(3, other)
		must(t, err, "OpenSocket of another owner")
		end()
	}
	closers[0]()
	end, err := s.openWithin(3, s.keyOwner())
	must(t, err, "OpenSocket after a socket has closed")
	_, err = s.openWithin(3, s.keyOwner())
	wantQuotaError(t, err, full)
	_, err = s.openWithin(2, s.keyOwner()) // the operator has reduced the quota
	wantQuotaError(t, err, auth.QuotaError{Quota: limit.QuotaSockets, Used: 3, Limit: 2})

	unlimited, err := s.keys.OpenSocket(s.ctx, s.keyOwner()) // without an admission, there is no quota
	must(t, err, "OpenSocket")
	for _, end := range append(closers[1:], end, unlimited) {
		end()
	}
	for range 3 {
		_, err := s.openWithin(3, s.keyOwner())
		must(t, err, "OpenSocket after all sockets have closed")
	}
}

func racingSockets(t *testing.T, s *subject) {
	var opened atomic.Int32
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			_, err := s.openWithin(3, s.keyOwner())
			if _, refused := errors.AsType[*auth.QuotaError](err); !refused && err != nil {
				t.Errorf("OpenSocket: %v", err)
			}
			if err == nil {
				opened.Add(1)
			}
		})
	}
	callers.Wait()
	if n := opened.Load(); n < 1 || n > 3 { // a refused caller may have been counted while another one asked
		t.Errorf("%d sockets are open, want 1 to 3", n)
	}
}

func socketAdmission(t *testing.T, s *subject) {
	p := s.key(t)
	limits := limit.TierLimits{RequestsPerMinute: 1, TokensPerMinute: 1, Sockets: 1}
	ctx, a := s.request(p, limits)
	end, err := s.keys.OpenSocket(ctx, p.Owner())
	must(t, err, "OpenSocket")
	if _, decided := a.Decision(); !decided {
		t.Error("OpenSocket did not admit the request")
	}
	end()
	ctx, _ = s.request(p, limits)
	_, err = s.keys.OpenSocket(ctx, p.Owner())
	refused(t, "OpenSocket above the rate limit", err, limit.ByRequests)

	must(t, s.keys.RevokeKey(s.ctx, p.Owner(), p.KeyID, auth.CLI), "RevokeKey")
	ctx, _ = s.request(p, limits)
	_, err = s.keys.OpenSocket(ctx, p.Owner())
	wantError(t, "OpenSocket with a revoked key", err, auth.ErrInvalidToken)
	_, err = s.openWithin(1, p.Owner()) // the refused requests have counted no socket
	must(t, err, "OpenSocket")
}
