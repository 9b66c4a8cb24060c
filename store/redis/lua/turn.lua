-- What beginning a turn and resuming one have in common. This text follows queue.lua.

local MESSAGE_OVERHEAD, PROMPT_OVERHEAD = 4, 3 -- those of conversation/window

-- The arithmetic of conversation/window: room for the reply, budget of the messages of a prompt.
local function room(window) return math.min(math.floor(window / 4), 4096) end
local function budget(window) return window - room(window) - PROMPT_OVERHEAD end

-- Returns the newest messages before the one that is asked, newest first: as many as the budget holds, and the one that no
-- longer fits.
local function history(s)
  local left, messages, before, chunk = budget(s.window), {}, '(' .. s.asked, 16
  while true do
    local members = redis.call('ZRANGE', messages_key(s.id), before, '-', 'BYLEX', 'REV', 'LIMIT', 0, chunk)
    for _, member in ipairs(members) do
      if left < 0 then return messages end
      messages[#messages + 1] = member
      left = left - member_tokens(member)
    end
    if #members < chunk then return messages end
    before, chunk = '(' .. string.sub(members[#members], 1, 20), 128
  end
end

-- Returns the live turn of a session as BeginTurn does.
local function turn_view(s) return {'begun', session_view(s), s.previous or '', history(s)} end
