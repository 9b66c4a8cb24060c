-- Notes that a ticket is used.
-- KEYS[1] the ticket
-- ARGV[1] when it expires, in milliseconds
-- → 1 this is the first time · 0 it was used, or is past its end
if now >= tonumber(ARGV[1]) then return 0 end
return redis.call('SET', KEYS[1], '1', 'NX', 'PXAT', ARGV[1]) and 1 or 0
