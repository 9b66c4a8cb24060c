package auth

import (
	"context"

	"parley/auth/limit"
)

// Admission is a request that is to be admitted: its key works, and its account's limits have room for it (design
// section 3, step 1). It rides in the context to the store: the first operation there admits it in its own transaction,
// before it does anything else, so that admission costs no trip of its own. Where it is refused, the operation has done
// nothing and returns [ErrInvalidToken] or a *[LimitError]. What reaches no operation is admitted by [Keys.Admit].
//
// conversation.Store.BeginTurn asks more of it, whether it is pending or not: that the key works in the moment in which the
// turn begins, and that its tokens can be reserved.
//
// It belongs to one request, and to one goroutine at a time.
type Admission struct {
	// static
	Principal Principal
	Limits    limit.TierLimits // of the principal's tier

	decision limit.Decision
	decided  bool
}

// Pending reports whether the request has still to be admitted. A nil admission is not.
func (a *Admission) Pending() bool { return a != nil && !a.decided }

// Decided is called by the store: the limits have admitted the request, or refused it.
func (a *Admission) SetDecision(d limit.Decision) { a.decision, a.decided = d, true }

// Decision returns what the limits said; ok is false while that is not known, and where the key was refused.
func (a *Admission) Decision() (d limit.Decision, ok bool) { return a.decision, a.decided }

type admissionKey struct{}

// WithAdmission returns a context in which the admission rides.
func WithAdmission(ctx context.Context, a *Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, a)
}

// AdmissionOf returns the admission that rides in a context, nil for none: what nobody's request is the cause of.
func AdmissionOf(ctx context.Context) *Admission {
	a, _ := ctx.Value(admissionKey{}).(*Admission)
	return a
}

// LimitError says which limit refuses.
type LimitError struct{ Decision limit.Decision }

func (e *LimitError) Error() string {
	return "the limit of " + e.Decision.Refused.String() + " is reached"
}
