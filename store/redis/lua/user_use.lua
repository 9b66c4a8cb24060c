-- Returns the numbers of requests and tokens that count for a user in the last minute.
-- KEYS[1] the user's window of requests · KEYS[2] the user's window of tokens
-- Result: {requests, tokens}
return {window_at(KEYS[1]).total, window_at(KEYS[2]).total}
