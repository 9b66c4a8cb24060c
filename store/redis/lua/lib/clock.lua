-- This library reads the server's clock, once in a script.
-- Defines: second, now.

local clock = redis.call('TIME')
local second = tonumber(clock[1]) -- Unix time in seconds
local now = second * 1000 + math.floor(tonumber(clock[2]) / 1000) -- Unix time in milliseconds
