package redis

import (
	"context"

	"parley/auth"
	"parley/auth/limit"
)

// Both scripts run lua/admit.lua. admitScript checks the API key and counts the request. checkScript only checks the API key.
var (
	admitScript = newScript("admit", admits)
	checkScript = newScript("admit", reserves|idempotent)
)

// Admit implements auth.Store.
func (s *Store) Admit(ctx context.Context) error {
	a := auth.AdmissionOf(ctx)
	if !a.Pending() {
		return nil
	}
	_, err := s.run(ctx, admitScript, ownerTag(a.Principal.Owner()), nil)
	return err
}

// KeyAlive implements auth.Store.
func (s *Store) KeyAlive(ctx context.Context, p auth.Principal) error {
	if p.Secret == (auth.Hash{}) { // the API key from the configuration, which is not in the store
		return auth.ErrInvalidToken
	}
	ctx = auth.WithAdmission(ctx, &auth.Admission{Principal: p})
	_, err := s.run(ctx, checkScript, ownerTag(p.Owner()), nil)
	return err
}

// withAdmission returns the Redis keys and arguments of an admission (lua/lib/admission.lua), followed by those of the operation.
// If a is nil, the script admits nothing.
func withAdmission(sc *script, a *auth.Admission, tag string, keys []string, args []any) ([]string, []any) {
	action, keyID, secret, day := "", "", "", any("")
	var limits limit.TierLimits
	if a != nil {
		limits, keyID = a.Limits, a.Principal.KeyID
		if a.Principal.Secret != (auth.Hash{}) {
			secret = hashText(a.Principal.Secret)
		}
		if a.Principal.Mode == auth.Test {
			day = limit.TestKeyRequestsPerDay
		}
		switch {
		case sc == checkScript:
			action = "check"
		case a.Pending():
			action = "count"
		case sc.has(reserves):
			action = "check"
		}
	}
	front := []string{keyKey(tag, keyID), requestsKey(tag), tokensKey(tag), dayKey(tag)}
	frontArgs := []any{action, secret, limits.RequestsPerMinute, limits.TokensPerMinute, day}
	return append(front, keys...), append(frontArgs, args...)
}

// decide splits the result of a script with an admission. It stores the admission's part in a, and returns the operation's part.
// If the request was refused, the error is auth.ErrInvalidToken or an *auth.LimitError.
func (s *Store) decide(ctx context.Context, sc *script, a *auth.Admission, reply any) (any, error) {
	parts := list(reply)
	if len(parts) == 0 {
		return nil, sc.malformed()
	}
	admission := list(parts[0])
	switch outcome(admission) {
	case "":
		return nil, sc.malformed()
	case "none":
	case "key":
		s.removePointer(ctx, a.Principal.Secret, a.Principal.Owner(), a.Principal.KeyID)
		return nil, auth.ErrInvalidToken
	default:
		decision, ok := decisionOf(a, admission[1:])
		if !ok {
			return nil, sc.malformed()
		}
		a.SetDecision(decision)
		if !decision.Admitted() {
			return nil, &auth.LimitError{Decision: decision}
		}
	}
	if len(parts) < 2 {
		return nil, nil
	}
	return parts[1], nil
}

// decisionOf returns the decision on a request. The slice figures holds three numbers for the limit of requests a minute: Used,
// Reset and Wait of its Status. For a test key, three numbers for the limit of requests a day follow. decisionOf reports whether
// the slice is valid.
func decisionOf(a *auth.Admission, figures []any) (limit.Decision, bool) {
	all := []limit.Status{
		{By: limit.ByRequests, Limit: a.Limits.RequestsPerMinute}, {By: limit.ByDay, Limit: limit.TestKeyRequestsPerDay},
	}
	if len(figures) != 3 && len(figures) != 6 {
		return limit.Decision{}, false
	}
	statuses := all[:len(figures)/3]
	for i := range statuses {
		status, ok := statusOf(statuses[i], figures[3*i:])
		if !ok {
			return limit.Decision{}, false
		}
		statuses[i] = status
	}
	return limit.Decide(statuses...), true
}

// tokensRefused returns the error for a turn that would exceed the limit of tokens a minute. The slice figures
// holds Used, Reset and Wait of the limit, in the order in which reserve (lua/lib/rate_window.lua) returns them.
func tokensRefused(perMinute int, figures any) (*auth.LimitError, error) {
	all := list(figures)
	if len(all) != 3 {
		return nil, errRecord
	}
	s, ok := statusOf(limit.Status{By: limit.ByTokens, Limit: perMinute}, all)
	if !ok {
		return nil, errRecord
	}
	return &auth.LimitError{Decision: limit.Decide(s)}, nil
}

// statusOf returns s with Used, Reset and Wait from the first three elements of figures. It reports whether these are numbers.
func statusOf(s limit.Status, figures []any) (limit.Status, bool) {
	used, ok1 := figures[0].(int64)
	reset, ok2 := figures[1].(int64)
	wait, ok3 := figures[2].(int64)
	s.Used, s.Reset, s.Wait = int(used), limit.Second(reset), int(wait)
	return s, ok1 && ok2 && ok3
}
