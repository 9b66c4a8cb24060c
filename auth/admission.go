package auth

import (
	"context"
	"fmt"

	"parley/auth/limit"
)

// Admission is the check that admits or refuses one request. The key of the request must work, and the limits of its owner
// must have capacity. The context of the request contains the admission. The first store operation of the request decides
// the admission before any other work, so there is no extra round trip. If the store refuses the request, the operation has
// no other effect and returns [ErrInvalidToken] or a [*LimitError]. [Keys.Admit] admits a request that needs no other store
// operation.
//
// conversation.Store.BeginTurn checks two things again, even if the request has been admitted. The key must still work
// when the turn begins, perhaps after a wait in the queue. The tokens of the turn must fit the limit of tokens a minute.
//
// An admission belongs to one request. Only one goroutine at a time may use it.
type Admission struct {
	// static
	Principal Principal
	Limits    limit.TierLimits // the limits of the principal's tier

	// Subject is the id of the user for whom the request counts, or the id of a session of that user; "" for none. The store
	// looks up the user of the session. If there is no such session, the request counts for no user. The caller sets Subject
	// before the first store operation, and has checked the format of the id.
	Subject string

	decision limit.Decision
	decided  bool
}

// Pending reports whether the store has not decided yet. It returns false for a nil admission.
func (a *Admission) Pending() bool { return a != nil && !a.decided }

// SetDecision records the decision of the limits. Only the store calls SetDecision.
func (a *Admission) SetDecision(d limit.Decision) { a.decision, a.decided = d, true }

// Decision returns the decision of the limits. ok is false if the store has not decided yet, or if the key does not work.
func (a *Admission) Decision() (d limit.Decision, ok bool) { return a.decision, a.decided }

type admissionKey struct{}

// WithAdmission returns a context that contains the admission.
func WithAdmission(ctx context.Context, a *Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, a)
}

// AdmissionOf returns the admission in the context. It returns nil for the context of background work, which needs no
// admission.
func AdmissionOf(ctx context.Context) *Admission {
	a, _ := ctx.Value(admissionKey{}).(*Admission)
	return a
}

// LimitsOf returns the limits of the admission in the context. Without an admission, all limits are 0. A quota of 0 means no
// limit: commands of the operator and background work have no quotas.
func LimitsOf(ctx context.Context) limit.TierLimits {
	if a := AdmissionOf(ctx); a != nil {
		return a.Limits
	}
	return limit.TierLimits{}
}

// LimitError means that a limit refuses a request.
type LimitError struct{ Decision limit.Decision }

func (e *LimitError) Error() string {
	return "the limit of " + e.Decision.Refused.String() + " is reached"
}

// QuotaError means that a quota refuses a request: with the request, the owner would have more than the quota allows. Unlike a
// rate limit, a quota does not refill within a minute. The owner must remove something first or, for limit.QuotaTokensPerMonth,
// wait for the next month.
type QuotaError struct {
	Quota limit.Quota
	Used  int64 // without the request
	Limit int64
}

// QuotaRefused returns the error for a request that a quota refused. used is the used part of the quota, without the request.
// ctx contains the admission of the request.
func QuotaRefused(ctx context.Context, quota limit.Quota, used int64) *QuotaError {
	limits := LimitsOf(ctx)
	return &QuotaError{Quota: quota, Used: used, Limit: limits.Quota(quota)}
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("the quota %s is used up: %d of %d", e.Quota, e.Used, e.Limit)
}
