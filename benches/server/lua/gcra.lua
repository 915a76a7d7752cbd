-- burst, rate, period in us. State: the arrival time in us, as a number: one GET, one SET.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local burst = tonumber(args[1])
local interval = args[3] / args[2]
local tolerance = burst * interval
local owed = (call('GET', keys[1]) or now) - now
if owed < 0 then owed = 0 end
local wanted = owed + interval
if wanted > tolerance then
  local remaining = floor((tolerance - owed) / interval)
  return {0, burst, remaining, ceil((wanted - tolerance) / 1000), ceil(owed / 1000)}
end
local reset_ms = ceil(wanted / 1000)
call('SET', keys[1], now + wanted, 'PX', reset_ms)
return {1, burst, floor((tolerance - wanted) / interval), 0, reset_ms}
