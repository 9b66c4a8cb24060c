-- Removes the records of some idempotency keys of a deleted session (forget_requests in lib/idempotency.lua).
-- KEYS[1] the session's list of idempotency keys
-- ARGV[1] the session's id
-- Result: 1 if more records are left, else 0
return forget_requests(ARGV[1])
