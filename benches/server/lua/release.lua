-- id. Only an unexpired lease is released.
local time = call('TIME')
local expires_at = call('ZSCORE', keys[1], args[1])
if expires_at and tonumber(expires_at) > time[1] * 1000000 + time[2] then
  return call('ZREM', keys[1], args[1])
end
return 0
