-- Takes a lease of frames from the window of an API key, as limit.Window.Lease (auth/limit/frames.go) does.
-- KEYS[1] window of frames
-- ARGV[1] limit of frames a minute · ARGV[2] number of frames wanted
-- ARGV[3] second of the last lease · ARGV[4] number of its unused frames
-- Result: {second, number of frames granted, number of seconds until a frame fits, milliseconds until the end of this second}
local limit, wanted = tonumber(ARGV[1]), tonumber(ARGV[2])
local w = window_at(KEYS[1])
window_give_back(w, tonumber(ARGV[3]), tonumber(ARGV[4]))
local wait, n = window_wait(w, 1, limit), 0
if wait == 0 then
  n = math.min(wanted, bounded(limit) - w.total)
  window_add(w, n)
end
window_save(w)
return {w.newest, n, wait, 1000 - now % 1000}
