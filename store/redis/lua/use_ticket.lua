-- Marks a ticket as used.
-- KEYS[1] the ticket
-- ARGV[1] expiry of the ticket in milliseconds
-- Result: 1 if the ticket was not used before · 0 if it was used before or has expired
if now >= tonumber(ARGV[1]) then return 0 end
return redis.call('SET', KEYS[1], '1', 'NX', 'PXAT', ARGV[1]) and 1 or 0
