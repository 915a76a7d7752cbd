-- limit, window in us. State: a counter that expires with its window. No clock is needed.
local limit = tonumber(args[1])
local used = tonumber(call('GET', keys[1]) or 0)
if used == 0 then
  local window_ms = ceil(args[2] / 1000)
  call('SET', keys[1], 1, 'PX', window_ms)
  return {1, limit, limit - 1, 0, window_ms}
end
local reset_ms = call('PTTL', keys[1])
if used >= limit then return {0, limit, 0, reset_ms, reset_ms} end
used = call('INCR', keys[1])
return {1, limit, limit - used, 0, reset_ms}
