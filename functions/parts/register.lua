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
