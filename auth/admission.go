package auth

import (
	"context"

	"parley/auth/limit"
)

// Admission is the admission of one request: that its key works and that its account's limits have room for it. It
// travels to the store in the context. The first operation there admits the request in its own transaction, before
// anything else, so that admission costs no round trip of its own. If it is refused, the operation has done nothing
// and returns [ErrInvalidToken] or a [*LimitError]. A request that needs no operation is admitted by [Keys.Admit].
//
// conversation.Store.BeginTurn asks for more, whether the admission is pending or not: the key must work at the
// moment when the turn begins, which may be after a wait in the queue, and its tokens must fit the limit.
//
// An admission belongs to one request, and to one goroutine at a time.
type Admission struct {
	// static
	Principal Principal
	Limits    limit.TierLimits // of the principal's tier

	decision limit.Decision
	decided  bool
}

// Pending reports whether the request is still to be admitted. A nil admission is not pending.
func (a *Admission) Pending() bool { return a != nil && !a.decided }

// SetDecision stores what the limits decided. The store calls it.
func (a *Admission) SetDecision(d limit.Decision) { a.decision, a.decided = d, true }

// Decision returns what the limits decided; ok is false if they have not, or if the key was refused.
func (a *Admission) Decision() (d limit.Decision, ok bool) { return a.decision, a.decided }

type admissionKey struct{}

// WithAdmission returns a context that carries the admission.
func WithAdmission(ctx context.Context, a *Admission) context.Context {
	return context.WithValue(ctx, admissionKey{}, a)
}

// AdmissionOf returns the admission in the context, or nil: work that no request asked for needs none.
func AdmissionOf(ctx context.Context) *Admission {
	a, _ := ctx.Value(admissionKey{}).(*Admission)
	return a
}

// LimitError means that a limit refuses a request.
type LimitError struct{ Decision limit.Decision }

func (e *LimitError) Error() string {
	return "the limit of " + e.Decision.Refused.String() + " is reached"
}
