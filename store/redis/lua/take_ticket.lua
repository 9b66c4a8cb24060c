-- Removes a ticket and returns it.
-- KEYS[1] the ticket
-- Result: the record of the ticket (auth.Ticket) as JSON · nil if there is no such ticket
return redis.call('GETDEL', KEYS[1])
