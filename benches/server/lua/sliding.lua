-- limit, window in us. State: start, previous and current count as three packed doubles: they cost
-- less than three fields of a hash, or than a text that must be split.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, window = tonumber(args[1]), tonumber(args[2])
local start = now - now % window
local previous, current = 0, 0
local state = call('GET', keys[1])
if state then
  local at, before, used = struct.unpack('ddd', state)
  if at == start then
    previous, current = before, used
  elseif at == start - window then
    previous = used
  end
end
local weight = (start + window - now) / window
local estimate = ceil(previous * weight) + current
local reset_ms = ceil((start + 2 * window - now) / 1000)
if estimate + 1 > limit then
  local free = limit - 1 - current
  local wait = free >= 0 and (weight - free / previous) * window
    or start + window - now + (1 - (limit - 1) / current) * window
  return {0, limit, 0, ceil(wait / 1000), reset_ms}
end
call('SET', keys[1], struct.pack('ddd', start, previous, current + 1), 'PX', reset_ms)
return {1, limit, limit - estimate - 1, 0, reset_ms}
