-- Stores a ticket.
-- KEYS[1] the ticket
-- ARGV[1] record of the ticket (auth.Ticket) as JSON · ARGV[2] milliseconds until the ticket expires
-- Result: the time at which the ticket expires, in milliseconds
local expires = now + ARGV[2]
redis.call('SET', KEYS[1], ARGV[1], 'PXAT', int(expires))
return expires
