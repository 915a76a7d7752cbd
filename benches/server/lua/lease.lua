-- id, limit, ttl in us. State: a sorted set with a member for each holder, scored by its expiry.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, ttl = tonumber(args[2]), tonumber(args[3])
call('ZREMRANGEBYSCORE', keys[1], '-inf', now)
local held = call('ZCARD', keys[1])
if held >= limit and not call('ZSCORE', keys[1], args[1]) then
  local enough = call('ZRANGE', keys[1], held - limit, held - limit, 'WITHSCORES')
  local last = call('ZRANGE', keys[1], -1, -1, 'WITHSCORES')
  return {0, limit, 0, ceil((enough[2] - now) / 1000), ceil((last[2] - now) / 1000)}
end
held = held + call('ZADD', keys[1], now + ttl, args[1])
-- The key must outlive the last lease, which may be that of another holder.
local last = call('ZRANGE', keys[1], -1, -1, 'WITHSCORES')
local reset_ms = ceil((last[2] - now) / 1000)
call('PEXPIRE', keys[1], reset_ms)
return {1, limit, limit - held, 0, reset_ms}
