-- Stores a node's count of an account's open sockets and renews its lease. If a newer count is stored, it does nothing.
-- KEYS[1] the account's open sockets in this mode
-- ARGV[1] the node · ARGV[2] number of this change of the node's count · ARGV[3] the node's count
-- ARGV[4] milliseconds of the lease
-- Result: 1 if the count was stored, else 0
if newer_sockets(ARGV[1], ARGV[2]) then return 0 end
set_sockets(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return 1
