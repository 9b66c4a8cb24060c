-- Returns a session.
-- KEYS[1] the session
-- ARGV[1] the session's id
-- Result: settings_view · 'gone' no such session
local s = session_at(ARGV[1])
return s and settings_view(s) or 'gone'
