-- Returns the algorithm whose states have this kind; nil if the library has none.
local function algorithm_of_kind(kind)
  local names = {
    [0xff] = 'FIXED', [0xfe] = 'SLIDING', [0xfd] = 'SLIDINGLOG', [0xfc] = 'TOKENBUCKET',
    [0xfb] = 'LEAKYBUCKET', [0xfa] = 'GCRA', [0xf9] = 'TOKENBUCKET', [0xf8] = 'LEAKYBUCKET',
    [0xf7] = 'BACKOFF', [0xf5] = 'FIXED',
  }
  return algorithm_of(names[kind] or '')
end

-- Bans the key until a duration from now, in place of any state of the module.
local function block(key, args, at)
  if #args ~= at then return failed('arity', 'BLOCK') end
  local length = durations_read[args[at]] or duration(args[at])
  if not length then return failed('duration', 'BLOCK') end
  local now = now_us()
  local bytes = attempt('GET', key)
  local unlinks = false
  if type(bytes) == 'table' then
    local failure = unfit(bytes)
    if failure ~= 'wrong_type' then return failed(failure, 'BLOCK') end
    unlinks = lease().is_set(key)
    if not unlinks then return failed('not_a_state', 'BLOCK') end
  elseif bytes then
    local kind = byte(bytes, 2)
    local limit, failure
    if kind == 0xf6 or kind == 0xf4 then
      -- A quota is stored like a fixed window, with or without reservations, but of another kind.
      kind = kind == 0xf6 and 0xff or 0xf5
      bytes = bytes:sub(1, 1) .. char(kind) .. bytes:sub(3)
    end
    local self = algorithm_of_kind(kind)
    -- Any numbers of a rule serve: only the bytes matter.
    if self then limit, failure = self.standing(bytes, now, 0, 1, 1000000, 1000000, 1000000) end
    if not limit and ban_in(bytes, now) == nil then
      return failed(failure or 'not_a_state', 'BLOCK')
    end
  end
  local ban = pair(0xf3, now + length, length)
  -- UNLINK frees the members in the background. Where the server cannot check that SET will not
  -- fail, SET replaces the set.
  if unlinks and may_run('SET', key, ban) then call('UNLINK', key) end
  store(key, now, not bytes, ban, length, 0)
  return redis.status_reply('OK')
end

