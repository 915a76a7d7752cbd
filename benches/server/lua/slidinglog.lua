-- limit, window in us. State: a sorted set with a member for each event, scored by its time.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, window = tonumber(args[1]), tonumber(args[2])
call('ZREMRANGEBYSCORE', keys[1], '-inf', now - window)
local used = call('ZCARD', keys[1])
if used >= limit then
  local first = call('ZRANGE', keys[1], 0, 0, 'WITHSCORES')
  local last = call('ZRANGE', keys[1], -1, -1, 'WITHSCORES')
  local retry_ms = ceil((first[2] + window - now) / 1000)
  return {0, limit, 0, retry_ms, ceil((last[2] + window - now) / 1000)}
end
-- The count in the member's name distinguishes two events of the same microsecond.
call('ZADD', keys[1], now, time[1] .. time[2] .. used)
local reset_ms = ceil(window / 1000)
call('PEXPIRE', keys[1], reset_ms)
return {1, limit, limit - used - 1, 0, reset_ms}
