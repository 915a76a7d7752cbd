-- capacity, rate, period in us. State: time and tokens as two packed doubles.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local capacity = tonumber(args[1])
local interval = args[3] / args[2]
local tokens = capacity
local state = call('GET', keys[1])
if state then
  local at, held = struct.unpack('dd', state)
  tokens = held + (now > at and (now - at) / interval or 0)
  if tokens > capacity then tokens = capacity end
end
if tokens < 1 then
  local reset_ms = ceil((capacity - tokens) * interval / 1000)
  return {0, capacity, 0, ceil((1 - tokens) * interval / 1000), reset_ms}
end
tokens = tokens - 1
local reset_ms = ceil((capacity - tokens) * interval / 1000)
call('SET', keys[1], struct.pack('dd', now, tokens), 'PX', reset_ms)
return {1, capacity, floor(tokens), 0, reset_ms}
