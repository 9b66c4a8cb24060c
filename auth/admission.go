package auth

import (
	"context"

	"parley/auth/limit"
)

// Admission is the check that admits one request: its key must work, and the limits of its account must have capacity. It
// travels to the store in the context. The first store operation of the request admits it in its own transaction, before
// anything else, so admission needs no extra round trip. If it is refused, the operation has no effect and returns
// [ErrInvalidToken] or a [*LimitError]. [Keys.Admit] admits a request that needs no store operation.
//
// conversation.Store.BeginTurn checks more, even if the admission has already been decided. The key must work when the
// turn begins, which may be after a wait in the queue, and the tokens of the turn must fit the limit.
//
// An admission belongs to one request, and to one goroutine at a time.
type Admission struct {
	// static
	Principal Principal
	Limits    limit.TierLimits // of the principal's tier

	decision limit.Decision
	decided  bool
}

// Pending reports whether the limits still have to decide. It is false for a nil admission.
func (a *Admission) Pending() bool { return a != nil && !a.decided }

// SetDecision stores the decision of the limits. Only the store calls it.
func (a *Admission) SetDecision(d limit.Decision) { a.decision, a.decided = d, true }

// Decision returns the decision of the limits. ok is false if they have not decided, or if the key was refused.
func (a *Admission) Decision() (d limit.Decision, ok bool) { return a.decision, a.decided }

type admissionKey struct{}

// WithAdmission returns a context that carries the admission.
func WithAdmission(ctx context.Context, a *Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, a)
}

// AdmissionOf returns the admission in the context, or nil. Background work has no admission and needs none.
func AdmissionOf(ctx context.Context) *Admission {
	a, _ := ctx.Value(admissionKey{}).(*Admission)
	return a
}

// LimitError means that a limit refuses a request.
type LimitError struct{ Decision limit.Decision }

func (e *LimitError) Error() string {
	return "the limit of " + e.Decision.Refused.String() + " is reached"
}
