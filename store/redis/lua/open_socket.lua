-- Counts a socket that a node opens, if the account may have another socket in this mode.
-- KEYS[1] the account's open sockets in this mode
-- ARGV[1] the node · ARGV[2] number of this change of the node's count · ARGV[3] the node's count, including the new socket
-- ARGV[4] maximum on all nodes, '0' for no limit · ARGV[5] milliseconds of the lease
-- Result: 'counted' · if the account already has the maximum or more: the number of open sockets without the new one
local newer = newer_sockets(ARGV[1], ARGV[2]) -- includes the new socket
local total = other_sockets(ARGV[1]) + (newer or tonumber(ARGV[3]))
if ARGV[4] ~= '0' and total > tonumber(ARGV[4]) then return total - 1 end
if not newer then set_sockets(ARGV[1], ARGV[2], ARGV[3], ARGV[5]) end
return 'counted'
