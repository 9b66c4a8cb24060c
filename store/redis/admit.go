package redis

import (
	"context"
	"strconv"
	"strings"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
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
// It reports whether the script admits the request or checks its API key. If not, the result of the script has no admission.
func withAdmission(sc *script, a *auth.Admission, tag string, keys []string, args []any) ([]string, []any, bool) {
	all := make([]any, 0, 6+len(args))
	action := "count"
	switch {
	case a == nil, !a.Pending() && !sc.has(reserves):
		return keys, append(append(all, ""), args...), false
	case !a.Pending(), sc == checkScript:
		action = "check"
	}
	secret, day := "", any("")
	if a.Principal.Secret != (auth.Hash{}) {
		secret = hashText(a.Principal.Secret)
	}
	if a.Principal.Mode == auth.Test {
		day = limit.TestKeyRequestsPerDay
	}
	all = append(all, action, secret, &a.Limits.RequestsPerMinute, &a.Limits.TokensPerMinute, day, userLimits(a, tag))
	return append([]string{keyKey(tag, a.Principal.KeyID)}, keys...), append(all, args...), true
}

// userLimits returns the argument of an admission that holds the limits of users, and the user or the session of the request.
func userLimits(a *auth.Admission, tag string) string {
	if !a.Limits.LimitsUsers() {
		return ""
	}
	limitText := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	user, session := a.Subject, ""
	if strings.HasPrefix(user, conversation.SessionPrefix) {
		user, session = "", sessionKey(tag, user)
	}
	return strings.Join([]string{limitText(a.Limits.UserRequests()), limitText(a.Limits.UserTokens()), user, session}, " ")
}

// decide splits the result of a script with an admission. It stores the admission's part in a, and returns the operation's part.
// If the request was refused, the error is auth.ErrInvalidToken or an *auth.LimitError.
func (s *Store) decide(ctx context.Context, sc *script, a *auth.Admission, reply any) (any, error) {
	parts := list(reply)
	if len(parts) == 0 {
		return nil, sc.malformed()
	}
	switch admission := text(parts[0]); admission {
	case "works":
	case "key":
		s.removePointer(ctx, a.Principal.Secret, a.Principal.Owner(), a.Principal.KeyID)
		return nil, auth.ErrInvalidToken
	default:
		decision, ok := decisionOf(a, admission)
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

// decisionOf returns the decision on a request. packed has three numbers for the limit of requests a minute: Used, Reset and Wait
// of its Status. For a test key, three numbers for the limit of requests a day follow. If the request counts for a user, three
// numbers for the limit of requests a minute for each user follow. decisionOf reports whether packed is valid.
func decisionOf(a *auth.Admission, packed string) (limit.Decision, bool) {
	all := []limit.Status{
		{By: limit.ByRequests, Limit: a.Limits.RequestsPerMinute}, {By: limit.ByDay, Limit: limit.TestKeyRequestsPerDay},
		{By: limit.ByUserRequests, Limit: a.Limits.UserRequests()},
	}
	if a.Principal.Mode != auth.Test {
		all = append(all[:1], all[2])
	}
	const size = 3 * 8 // of the numbers of a limit
	n := len(packed) / size
	if len(packed)%size != 0 || n < len(all)-1 || n > len(all) {
		return limit.Decision{}, false
	}
	figures := structReader{rest: packed}
	for i := range all[:n] {
		all[i].Used, all[i].Reset, all[i].Wait = figures.int(), limit.Second(figures.number()), figures.int()
	}
	return limit.Decide(all[:n]...), true
}

// tokensRefused returns the error for a turn that would exceed a limit of tokens a minute. The slice figures holds the second
// result of reserve_tokens (lua/lib/admission.lua): Used, Reset and Wait of the limit. If it is the limit of a user, a fourth
// element, "user", follows.
func tokensRefused(a *auth.Admission, figures any) (*auth.LimitError, error) {
	all, refusing := list(figures), limit.Status{By: limit.ByTokens, Limit: a.Limits.TokensPerMinute}
	if len(all) == 4 && text(all[3]) == "user" {
		all, refusing = all[:3], limit.Status{By: limit.ByUserTokens, Limit: a.Limits.UserTokens()}
	}
	if len(all) != 3 {
		return nil, errRecord
	}
	refusing.Used, refusing.Reset, refusing.Wait = int(integer(all[0])), limit.Second(integer(all[1])), int(integer(all[2]))
	admitted, _ := a.Decision()
	return &auth.LimitError{Decision: admitted.RefuseTokens(refusing)}, nil
}
