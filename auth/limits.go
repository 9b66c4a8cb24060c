package auth

import (
	"net/netip"
	"sync"
	"time"

	"parley/auth/limit"
)

// Limits are the figures of the tiers, and the failed authentications of each address, which this process counts in its own
// memory (design section 6). What requests and tokens count towards is the store's: see [Admission]. Its methods may be
// called from any goroutine.
type Limits struct {
	tiers limit.Tiers // static

	mu       sync.Mutex
	failures *limit.Failures // guarded by mu
}

// NewLimits returns limits with the tiers' figures; nobody has failed yet.
func NewLimits(tiers limit.Tiers) *Limits {
	return &Limits{tiers: tiers, failures: limit.NewFailures()}
}

// Admission returns the admission of one request of the principal.
func (l *Limits) Admission(p Principal) *Admission {
	figures, ok := l.tiers.Limits(p.Tier)
	if !ok {
		figures, _ = l.tiers.Limits(limit.Free)
	}
	return &Admission{Principal: p, Limits: figures}
}

// Standing returns the figures of an address, and counts nothing.
func (l *Limits) FailureStatus(from netip.Addr) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures.Check(limit.SecondOf(time.Now()), from)
}

// Fail counts a failed authentication from an address: the decision says whether there was room for it.
func (l *Limits) RecordFailure(from netip.Addr) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures.Record(limit.SecondOf(time.Now()), from)
}
