package redis

import "context"

var forgetRequestsScript = newScript("forget_requests", idempotent)

// forgetRequests removes the records of the idempotency keys of a deleted session. Each round trip removes up to
// requestsForgottenAtOnce records, so that a session with many of them does not block Redis. After an error, the rest expires
// with the session; no script uses a record without its session.
func (s *Store) forgetRequests(ctx context.Context, tag, sessionID string) {
	for more := true; more; {
		reply, err := s.run(ctx, forgetRequestsScript, tag, []string{sessionRequestsKey(tag, sessionID)}, sessionID)
		more = err == nil && integer(reply) == 1
	}
}
