-- capacity, rate, period in us. State: time and level as two packed doubles.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local capacity = tonumber(args[1])
local interval = args[3] / args[2]
local level = 0
local state = call('GET', keys[1])
if state then
  local at, held = struct.unpack('dd', state)
  level = held - (now > at and (now - at) / interval or 0)
  if level < 0 then level = 0 end
end
if level + 1 > capacity then
  local reset_ms = ceil(level * interval / 1000)
  return {0, capacity, 0, ceil((level + 1 - capacity) * interval / 1000), reset_ms}
end
local wait_ms = ceil(level * interval / 1000)
level = level + 1
local reset_ms = ceil(level * interval / 1000)
call('SET', keys[1], struct.pack('dd', now, level), 'PX', reset_ms)
return {1, capacity, floor(capacity - level), wait_ms, reset_ms}
