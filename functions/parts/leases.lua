-- Leases ---------------------------------------------------------------------------------------

-- Leases. The holders are a sorted set: an empty member of score 0, which marks the set as a set of
-- leases, and a member for each id, whose score is the instant at which its lease expires.

-- The largest number of expired holders that a call removes when it adds one.
local REMOVED_MAX = 8

-- Returns the functions that read a set of leases.
local function lease_set()
  local set = {}

  -- Returns the instant of a score; nil if no lease can have that score.
  local function instant_of(score)
    local instant = tonumber(score)
    if instant and instant >= 1 and instant <= INSTANT_MAX and instant % 1 == 0 then
      return instant
    end
  end

  -- Returns true and the score of the first lease if the key exists, and false if it does not; or
  -- nil and the failure. For a ban that has ended, returns false and true; for any other ban,
  -- returns nil and a table of the three numbers that ban_in returns.
  function set.look_at(key, now)
    local first = attempt('ZRANGE', key, '0', '1', 'WITHSCORES')
    if first.err then
      if not find(first.err, 'WRONGTYPE', 1, true) then return nil, first.err end
      local left, length, moved = ban_in(attempt('GET', key), now)
      if left == false then return false, true end
      return nil, left and { left, length, moved } or 'wrong_type'
    end
    if first[1] == '' and first[2] == '0' then return true, first[4] end
    if not first[1] then return false end
    -- In a set of another program, the empty member may come later than first.
    local mark = call('ZSCORE', key, '')
    if not mark or tonumber(mark) ~= 0 then return nil, 'wrong_type' end
    return true, first[4]
  end

  -- Returns the number of expired holders, given the score of the first holder; nil if a score is
  -- invalid. The mark has rank 0, so the holders begin at rank 1.
  function set.count_expired(key, now, score)
    if not score then return 0 end
    local expires = instant_of(score)
    if not expires then return end
    if expires > now then return 0 end
    local first = call('ZRANGE', key, '1', REMOVED_MAX + 1, 'WITHSCORES')
    for at = 4, #first, 2 do
      expires = instant_of(first[at])
      if not expires then return end
      if expires > now then return at / 2 - 1 end
    end
    if #first <= 2 * REMOVED_MAX then return #first / 2 end
    return call('ZCOUNT', key, '1', now)
  end

  -- Returns the instant at which the lease of an id expires; false if the lease is not live, nil if
  -- the score is invalid.
  function set.expiry_of_id(key, id, now)
    local score = call('ZSCORE', key, id)
    if not score then return false end
    local expires = instant_of(score)
    return expires and expires > now and expires or expires and false
  end

  -- Returns the instant at which the last lease of the other holders expires; false if no other
  -- lease is live, nil if the score is invalid.
  function set.last_of_others(key, id, now)
    local last = call('ZREVRANGE', key, '0', '1', 'WITHSCORES')
    local at = last[1] == id and 3 or 1
    if not last[at] or last[at] == '' then return false end
    local expires = instant_of(last[at + 1])
    return expires and expires > now and expires or expires and false
  end

  -- Returns the instant at which the live lease of this rank expires: `rank` live leases expire
  -- before it. Returns nil if the score of the lease is invalid.
  function set.expiry_at(key, now, expired, rank)
    local found
    if rank <= REMOVED_MAX then
      found = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now), '+inf',
        'WITHSCORES', 'LIMIT', rank, '1')
    else
      found = call('ZRANGE', key, 1 + expired + rank, 1 + expired + rank, 'WITHSCORES')
    end
    if not found[2] then return now end
    return instant_of(found[2])
  end

  return set
end

-- Returns the functions of the commands on leases.
local function leases()
  local set = lease_set()
  local self = {}

  -- Reads the arguments from place `at` on: an id, then for LEASE the limit of holders and the ttl,
  -- for RENEW the ttl. Returns them and the permits that must be left, or nil and the failure.
  function self.read(args, at, verb)
    local id, limit, ttl = args[at], args[at + 1], args[at + 2]
    local count = #args - at + 1
    if verb == 'RENEW' then limit, ttl = nil, limit end
    if verb == 'RELEASE' and count ~= 1 or verb == 'RENEW' and count ~= 2
      or verb == 'LEASE' and count < 3 then
      return nil, 'arity'
    end
    if #id < 1 or #id > 128 then return nil, 'id' end
    if verb == 'LEASE' then
      limit = integer(limit, 1, 1000000)
      if not limit then return nil, 'holders' end
    end
    if verb ~= 'RELEASE' then
      ttl = durations_read[ttl] or duration(ttl)
      if not ttl then return nil, 'ttl' end
    end
    if verb ~= 'LEASE' or count == 3 then return id, limit, ttl, 0 end
    local units, percent
    at = at + 3
    while args[at] do
      if name_of(args[at]) ~= 'LEAVE' then return nil, 'lease_option' end
      if units then return nil, 'repeated_leave' end
      if not args[at + 1] then return nil, 'missing_leave' end
      units, percent = leave(args[at + 1])
      if not units then return nil, 'leave' end
      at = at + 2
    end
    return id, limit, ttl, left_units({ units = units, percent = percent }, limit)
  end

  -- Decides if the id may hold a lease after which `left` permits remain. Returns the verdict, the
  -- permits left, the time to wait, the time until the last lease expires, and the argument for
  -- hold if a lease is granted; or nil and the failure.
  function self.decide(key, id, limit, ttl, left, now, holds_back)
    local there, first = set.look_at(key, now)
    if there == nil then
      if type(first) ~= 'table' then return nil, first end
      local grant = first[3] and { ban = first[2] }
      return 1 + left > limit and -1 or 0, 0, first[1], first[1], grant
    end
    local live, expired, mine, others = 0, 0, false, false
    if there then
      expired = set.count_expired(key, now, first)
      if not expired then return nil, 'wrong_type' end
      live = call('ZCARD', key) - 1 - expired
      if live < 0 then live = 0 end
      mine = set.expiry_of_id(key, id, now)
      others = set.last_of_others(key, id, now)
      if mine == nil or others == nil then return nil, 'wrong_type' end
    end
    if live + left >= limit and not mine then
      if left >= limit then
        return -1, limit > live and limit - live or 0, 0, others and others - now or 0
      end
      local enough = set.expiry_at(key, now, expired, live + left - limit)
      if not enough then return nil, 'wrong_type' end
      local wait, reset = enough - now, others and others - now or 0
      return 0, limit > live and limit - live or 0, wait > 0 and wait or 0, reset
    end
    local last = math.max(mine or now, others or now)
    if holds_back then
      return 1, limit > live and limit - live or 0, 0, last - now
    end
    local expires = now + ttl
    last = others and others > expires and others or expires
    if not mine then live = live + 1 end
    local grant = { id, expires, last, there, expired > 0, not there and first }
    return 1, limit > live and limit - live or 0, 0, last - now, grant
  end

  -- Adds or renews a holder and removes a few expired holders. The key expires after its last
  -- lease, which expires in `left`. A new expiry of the key is `left / 8` after the lease's. The
  -- key keeps a present expiry that is from 0 to `left` after the lease's.
  function self.hold(key, now, grant)
    if grant.ban then
      return store(key, now, false, pair(0xf3, now + grant.ban, grant.ban), grant.ban, 0)
    end
    local id, expires, last, there, has_expired = grant[1], grant[2], grant[3], grant[4], grant[5]
    local left = last - now
    local expiry = new_expiry(key, now, left, left, not there)
      and expiry_ms(now, left + floor(left / 8))
    if expiry then check_right_to_expire(key, expiry) end
    if has_expired then
      local first = call('ZRANGE', key, '1', REMOVED_MAX, 'WITHSCORES')
      local removed = {}
      for at = 1, #first, 2 do
        if tonumber(first[at + 1]) > now then break end
        if first[at] ~= id then removed[#removed + 1] = first[at] end
      end
      if #removed > 0 then call('ZREM', key, spread(removed)) end
    end
    if there then
      call('ZADD', key, expires, id)
    else
      -- A ban that has ended is still there.
      if grant[6] then call('UNLINK', key) end
      call('ZADD', key, '0', '', expires, id)
    end
    if expiry then call('PEXPIREAT', key, expiry) end
  end

  -- Returns true if the key, which does not hold a string, is a set of leases.
  function self.is_set(key) return set.look_at(key) end

  -- Returns 0 for a key without leases: it is missing or has a ban. Otherwise returns nil and the
  -- failure.
  local function without_leases(there, failure)
    if there == false or type(failure) == 'table' then return 0 end
    return nil, failure
  end

  -- Renews a live lease. Returns 1; 0 if the lease is not live; or nil and the failure.
  function self.renew(key, now, id, ttl)
    local there, failure = set.look_at(key, now)
    if not there then return without_leases(there, failure) end
    local mine = set.expiry_of_id(key, id, now)
    if not mine then return mine == false and 0 or nil, 'wrong_type' end
    local others = set.last_of_others(key, id, now)
    if others == nil then return nil, 'wrong_type' end
    local expires = now + ttl
    local last = others and others > expires and others or expires
    self.hold(key, now, { id, expires, last, true, false })
    return 1
  end

  -- Releases a live lease. Sets an earlier expiry of the key if the other leases do not need the
  -- present one, and unlinks the key if no live lease is left. Returns the same as renew.
  function self.release(key, now, id)
    local there, failure = set.look_at(key, now)
    if not there then return without_leases(there, failure) end
    local mine = set.expiry_of_id(key, id, now)
    if not mine then return mine == false and 0 or nil, 'wrong_type' end
    local last = set.last_of_others(key, id, now)
    if last == nil then return nil, 'wrong_type' end
    if not last then
      -- UNLINK frees the members in the background: there may be many expired holders.
      call('UNLINK', key)
      return 1
    end
    local left = last - now
    local expiry = new_expiry(key, now, left, left) and expiry_ms(now, left + floor(left / 8))
    if expiry then check_right_to_expire(key, expiry) end
    call('ZREM', key, id)
    if expiry then call('PEXPIREAT', key, expiry) end
    return 1
  end

  return self
end

local lease_calls
local function lease()
  lease_calls = lease_calls or leases()
  return lease_calls
end

-- Runs a call about one lease. The verb is LEASE, RENEW, RELEASE, or PEEK of LEASE.
local function apply_lease(verb, keys, args, at)
  local self, key = lease(), keys[1]
  local id, limit, ttl, left = self.read(args, at, verb == 'PEEK' and 'LEASE' or verb)
  if not id then return failed(limit, verb) end
  local now = now_us()
  if verb == 'RENEW' or verb == 'RELEASE' then
    local settle = verb == 'RENEW' and self.renew or self.release
    local done, failure = settle(key, now, id, ttl)
    return done or failed(failure, verb)
  end
  local verdict, remaining, wait, reset, grant = self.decide(key, id, limit, ttl, left, now)
  if not verdict then return failed(remaining, verb) end
  if grant and verb == 'LEASE' then self.hold(key, now, grant) end
  return five(verdict, limit, remaining, wait, reset)
end

