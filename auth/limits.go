package auth

import (
	"net/netip"
	"sync"
	"time"

	"parley/auth/limit"
)

// Limits holds the limits of each tier. It also counts the failed authentications of each address, in the memory of this
// process. The store counts requests and tokens (see [Admission]). The methods of Limits may be called from any goroutine.
type Limits struct {
	tiers limit.Tiers // static

	mu       sync.Mutex
	failures *limit.Failures // guarded by mu
}

// NewLimits returns Limits for these tiers.
func NewLimits(tiers limit.Tiers) *Limits {
	return &Limits{tiers: tiers, failures: limit.NewFailures()}
}

// Admission returns a pending admission for one request of the principal. If the principal's tier is unknown, the limits
// of limit.Free apply. If the principal may access only one session, the request counts for the user of that session.
func (l *Limits) Admission(p Principal) *Admission {
	figures, ok := l.tiers.Limits(p.Tier)
	if !ok {
		figures, _ = l.tiers.Limits(limit.Free)
	}
	return &Admission{Principal: p, Limits: figures, Subject: p.SessionID}
}

// FailureStatus returns the rate-limit figures of an address. It counts nothing, and its decision never refuses.
func (l *Limits) FailureStatus(from netip.Addr) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures.Check(limit.SecondOf(time.Now()), from)
}

// RecordFailure counts a failed authentication from an address. If the address has reached the limit of failures a minute,
// the decision refuses the request, and the failure is not counted.
func (l *Limits) RecordFailure(from netip.Addr) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures.Record(limit.SecondOf(time.Now()), from)
}
