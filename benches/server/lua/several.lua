-- GCRA, FIXED and TOKENBUCKET, all or nothing. burst, rate, period; limit, window; capacity, rate,
-- period; times in us. States as in the script of each limiter; one MGET reads all three.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local states = call('MGET', keys[1], keys[2], keys[3])

local burst = tonumber(args[1])
local interval = args[3] / args[2]
local tolerance = burst * interval
local owed = (states[1] or now) - now
if owed < 0 then owed = 0 end
local wanted = owed + interval

local limit = tonumber(args[4])
local used = tonumber(states[2] or 0)

local capacity = tonumber(args[6])
local per_token = args[8] / args[7]
local tokens = capacity
if states[3] then
  local at, held = struct.unpack('dd', states[3])
  tokens = held + (now > at and (now - at) / per_token or 0)
  if tokens > capacity then tokens = capacity end
end

if wanted > tolerance or used >= limit or tokens < 1 then
  local retry_us, number = wanted - tolerance, 1
  local of, left = burst, floor((tolerance - owed) / interval)
  local reset_us = owed
  if used >= limit then
    local window_us = call('PTTL', keys[2]) * 1000
    if window_us > retry_us then
      retry_us, number, of, left, reset_us = window_us, 2, limit, 0, window_us
    end
  end
  local refill_us = (1 - tokens) * per_token
  if refill_us > retry_us then
    retry_us, number, of, left = refill_us, 3, capacity, 0
    reset_us = (capacity - tokens) * per_token
  end
  return {0, of, left, ceil(retry_us / 1000), ceil(reset_us / 1000), number}
end

local reset_us = wanted
call('SET', keys[1], now + wanted, 'PX', ceil(wanted / 1000))
local of, left, number = burst, floor((tolerance - wanted) / interval), 1

if used == 0 then
  call('SET', keys[2], 1, 'PX', ceil(args[5] / 1000))
else
  call('INCR', keys[2])
end
if limit - used - 1 < left then
  of, left, number = limit, limit - used - 1, 2
  reset_us = used == 0 and args[5] or call('PTTL', keys[2]) * 1000
end

tokens = tokens - 1
local refill_us = (capacity - tokens) * per_token
call('SET', keys[3], struct.pack('dd', now, tokens), 'PX', ceil(refill_us / 1000))
if floor(tokens) < left then
  of, left, number, reset_us = capacity, floor(tokens), 3, refill_us
end
return {1, of, left, 0, ceil(reset_us / 1000), number}
