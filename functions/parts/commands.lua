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

-- Runs the module's command `verb`, named without RL. Its arguments after the keys begin at place
-- `at`.
local function run(verb, keys, args, at)
  local self = algorithms[verb]
  if self and #keys == 1 then return apply(self, verb, keys, args, at) end
  if not call then bind() end
  if verb == 'ALL' or verb == 'PEEKALL' then
    run_several = run_several or several()
    return run_several(verb, keys, args, at)
  end
  self = algorithm_of(verb)
  if verb == 'VERSION' then
    return VERSION
  elseif not self and find(' QUOTA USE RESERVE COMMIT CANCEL POLICY INSPECT METRICS ',
    ' ' .. verb .. ' ', 1, true) then
    return failed('ERR ' .. verb .. NEEDS_MODULE, verb)
  elseif #keys ~= 1 then
    return failed('keys', verb)
  elseif self then
    return apply(self, verb, keys, args, at)
  elseif verb == 'BLOCK' then
    return block(keys[1], args, at)
  elseif verb == 'LEASE' or verb == 'RENEW' or verb == 'RELEASE' then
    return apply_lease(verb, keys, args, at)
  elseif verb ~= 'PEEK' and verb ~= 'CHARGE' and verb ~= 'REFUND' then
    return failed('command', verb)
  end
  -- A call with too few arguments gets the error that the server returns for a command of the
  -- module, before the grammar checks the arguments.
  if not args[at + 1] then return failed('arity', verb) end
  local name = name_of(args[at])
  self = algorithm_of(name)
  if self then return apply(self, verb, keys, args, at + 1) end
  if name == 'LEASE' and verb == 'PEEK' then return apply_lease(verb, keys, args, at + 1) end
  return failed(unnamed(name), verb)
end

-- As a library -----------------------------------------------------------------------------------

local function register(name, verb, flags)
  redis.register_function({
    function_name = name,
    callback = function(keys, args) return run(verb, keys, args, 1) end,
    flags = flags,
  })
end

-- Functions without a flag are refused on a replica and beyond maxmemory.
register('rl_gcra', 'GCRA', {})
register('rl_fixed', 'FIXED', {})
register('rl_sliding', 'SLIDING', {})
register('rl_slidinglog', 'SLIDINGLOG', {})
register('rl_tokenbucket', 'TOKENBUCKET', {})
register('rl_leakybucket', 'LEAKYBUCKET', {})
register('rl_backoff', 'BACKOFF', {})
register('rl_charge', 'CHARGE', {})
register('rl_all', 'ALL', {})
register('rl_refund', 'REFUND', { 'allow-oom' })
register('rl_lease', 'LEASE', {})
register('rl_renew', 'RENEW', { 'allow-oom' })
register('rl_release', 'RELEASE', { 'allow-oom' })
register('rl_block', 'BLOCK', { 'allow-oom' })
register('rl_peek', 'PEEK', { 'no-writes' })
register('rl_peekall', 'PEEKALL', { 'no-writes' })
register('rl_version', 'VERSION', { 'no-writes' })
-- The features of these functions need the module: the functions return an error that says so.
register('rl_quota', 'QUOTA', { 'no-writes' })
register('rl_use', 'USE', { 'no-writes' })
register('rl_reserve', 'RESERVE', { 'no-writes' })
register('rl_commit', 'COMMIT', { 'no-writes' })
register('rl_cancel', 'CANCEL', { 'no-writes' })
register('rl_policy', 'POLICY', { 'no-writes' })
register('rl_inspect', 'INSPECT', { 'no-writes' })
register('rl_metrics', 'METRICS', { 'no-writes' })
