-- Returns a page of an account's audit log in a mode, newest first.
-- KEYS[1] the audit log
-- ARGV[1] only entries before this time, '' for all · ARGV[2] maximum number of entries plus 1
-- Result: {entry, time, entry, time, …}. Times are in milliseconds. An entry is a JSON object. All its members are strings:
--   id · action · actor · tier ('' if the operation named none) · keyId, name, scopes (JSON), prefix, expires ('' for never); the
--   last five are absent if the operation has no API key.
return redis.call('ZRANGE', KEYS[1], ARGV[1] == '' and '+inf' or '(' .. ARGV[1], '(' .. int(now - AUDIT_LIFETIME), 'BYSCORE', 'REV',
  'LIMIT', 0, ARGV[2], 'WITHSCORES')
