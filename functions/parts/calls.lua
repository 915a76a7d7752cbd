-- Calls ----------------------------------------------------------------------------------------

-- Returns the failure for a name that is not an algorithm of this library.
local function unnamed(name)
  if name == 'LEASE' then return 'lease_not_here' end
  local is_known = name == 'QUOTA' or name == 'RESERVE' or name == 'USE'
  if is_known then return 'ERR ' .. name .. NEEDS_MODULE end
  return 'algorithm'
end

-- Returns the failure for a key whose value is not a string of at least four bytes, the length of
-- the shortest state.
local function unfit(bytes)
  if type(bytes) == 'table' and not find(bytes.err, 'WRONGTYPE', 1, true) then return bytes.err end
  return 'wrong_type'
end

-- The functions below return a verdict, the time to wait, and what to write: 'keep' to store the
-- state, 'forget' to delete the key, or nil to write nothing. The verdict is 1 (or the number of
-- units granted) for an allowed call, 0 for a denied call, and -1 for a call that can never be
-- allowed.

-- Returns the units that must be left, under a limit. rarer: as options returns it.
local function left_units(rarer, limit)
  if rarer.percent then return floor(limit * rarer.percent / 100) end
  return rarer.units or 0
end

-- Takes the cost if there is room, and if `left` units remain afterwards. If `holds_back` is true,
-- another rule has denied the call, and nothing is taken.
local function decide(self, limit, repaired, cost, holds_back, left)
  local verdict, wait = 1, 0
  local needed = left and cost + left or cost
  if needed > limit then
    verdict = -1
  else
    local lack = self.lacks(needed)
    if lack and needed > 0 then
      verdict, wait = 0, lack
    elseif self.wait then
      wait = self.wait()
    end
  end
  if cost == 0 then return verdict, wait end
  if verdict == 1 and not holds_back then
    self.take(cost)
    return verdict, wait, 'keep'
  end
  return verdict, wait, repaired and 'keep'
end

-- Returns functions for the rarer kinds of calls. They are created when one of them is first used.
local function settling()
  local settle = {}

  -- Takes the units that remain above `left`, up to the cost. The cost is at least 1.
  function settle.PARTIAL(self, limit, repaired, cost, left)
    local granted = self.after() - left
    if granted > cost then granted = cost end
    if granted <= 0 then
      if left >= limit then return -1, 0, repaired and 'keep' end
      return 0, self.lacks(1 + left) or 0, repaired and 'keep'
    end
    local wait = self.wait and self.wait() or 0
    self.take(granted)
    return granted, wait, 'keep'
  end

  -- Takes the cost unconditionally. The verdict is denied if the key is in debt afterwards.
  function settle.CHARGE(self, limit, _, cost)
    if cost == 0 then
      local clear = self.lacks(0) or 0
      return plain(clear) == 0 and 1 or 0, clear
    end
    local fits = cost <= limit and not self.lacks(cost)
    self.take(cost, true)
    if not fits then
      if exceeds(self.in_use(), TOTAL_MAX) then return nil, 'too_many_units' end
      local _, reset = self.after()
      if exceeds(reset, REFILL_MAX) then return nil, 'too_long' end
    end
    return fits and 1 or 0, self.lacks(0) or 0, 'keep'
  end

  -- Gives the cost back, but never more units than are in use. The verdict is denied if the key is
  -- still in debt.
  function settle.REFUND(self, _, repaired, cost)
    local finds = cost > 0 and self.in_use() ~= 0
    if finds then self.give_back(cost) end
    local clear = self.lacks(0) or 0
    local verdict = plain(clear) == 0 and 1 or 0
    if finds and self.in_use() == 0 then return verdict, clear, 'forget' end
    return verdict, clear, cost > 0 and (finds or repaired) and 'keep' or nil
  end

  return settle
end

local settle

-- Returns the Unix time in ms at which the key expires; a number below 0 if it never expires.
local function expiry_of(key, now)
  if knows_expiry then return call('PEXPIRETIME', key) end
  local left = call('PTTL', key)
  return left >= 0 and left + floor(now / 1000) or -1
end

-- Returns a new expiry for a key whose state expires `expires_in` after `now`. If the key can keep
-- its present expiry, returns nil and that expiry: it is not before the state expires, and at most
-- `slack` later.
local function new_expiry(key, now, expires_in, slack, is_new)
  local relaxed = expiry_ms(now, expires_in + slack)
  if is_new then return relaxed end
  local expiry = expiry_of(key, now)
  if expiry < expiry_ms(now, expires_in) or expiry > relaxed then return relaxed end
  return nil, expiry
end

-- Returns true if the caller may run a command. Servers before 7.0 cannot check a permission.
local function may_run(...)
  local allows = redis.acl_check_cmd
  return allows and allows(...)
end

-- Checks the permission to set an expiry, before a value and then its expiry are written. Without
-- the permission, the call fails here, before anything is written. If the server cannot check it,
-- this sets the expiry of the old value, which fails without the permission.
local function check_right_to_expire(key, expiry)
  if not may_run('PEXPIREAT', key, expiry) then call('PEXPIREAT', key, expiry) end
end

-- Stores `bytes` as the whole value, or in place of everything from `offset` to the value's end.
local function store(key, now, is_new, bytes, expires_in, slack, offset)
  local expiry, kept
  if slack == 0 then
    expiry = expiry_ms(now, expires_in)
  else
    expiry, kept = new_expiry(key, now, expires_in, slack, is_new)
  end
  if offset then
    if expiry then check_right_to_expire(key, expiry) end
    call('SETRANGE', key, offset, bytes)
    if expiry then call('PEXPIREAT', key, expiry) end
  elseif not knows_expiry then
    check_right_to_expire(key, expiry or kept)
    call('SET', key, bytes)
    call('PEXPIREAT', key, expiry or kept)
  elseif expiry then
    call('SET', key, bytes, 'PXAT', expiry)
  else
    call('SET', key, bytes, 'KEEPTTL')
  end
end

-- Returns the five integers of a reply.
local function five(verdict, limit, remaining, wait, reset)
  if verdict < 0 then return { 0, limit, remaining, -1, ms(reset) } end
  return { verdict, limit, remaining, wait == 0 and 0 or ms(wait), ms(reset) }
end

-- Decides a call on a value that the rule's algorithm cannot read: a ban denies it. `needed` is the
-- units that must be there, with those to leave. Returns the reply; if the ban moves to now, also
-- the bytes to store, and how long after now they expire. Returns false for a ban that has ended,
-- and nil if the value is not a ban.
local function denied(bytes, now, limit, needed, moves)
  local left, length, moved = ban_in(bytes, now)
  if not left then return left end
  local reply = five(needed > limit and -1 or 0, limit, 0, left, left)
  if moved and moves then return reply, pair(0xf3, now + length, length), length end
  return reply
end

-- Runs a call with one rule. The rule's arguments begin at place `at`. The verb is PEEK, CHARGE or
-- REFUND, or the algorithm's name: such a call takes its cost if there is room.
local function apply(self, verb, keys, args, at)
  local cost, rarer, a, b, c, d = self.read(args, at, self.term)
  if not cost then return failed(rarer, verb) end
  local settles = verb == 'CHARGE' or verb == 'REFUND'
  if rarer and settles then
    return failed(rarer.partial and 'partial_not_here' or 'leave_not_here', verb)
  end
  local key = keys[1]
  local bytes = attempt('GET', key)
  if bytes and #bytes < 4 then return failed(unfit(bytes), verb) end
  local now = now_us()
  -- The limit or capacity is the first of the rule's numbers.
  local left = rarer and left_units(rarer, a)
  local limit, repaired = self.standing(bytes, now, left and cost + left or cost, a, b, c, d)
  if not limit then
    local needed = settles and 0 or (rarer and rarer.partial and 1 or cost) + (left or 0)
    local reply, ban, expires_in = denied(bytes, now, a, needed, cost > 0 and not settles)
    if reply == nil then return failed(repaired or 'wrong_type', verb) end
    if ban and verb ~= 'PEEK' then store(key, now, false, ban, expires_in, 0) end
    if reply then return reply end
    limit, repaired = self.standing(nil, now, left and cost + left or cost, a, b, c, d)
  end
  local verdict, wait, writes
  if settles or rarer and rarer.partial then
    settle = settle or settling()
    verdict, wait, writes = settle[settles and verb or 'PARTIAL'](self, limit, repaired, cost, left)
    if not verdict then return failed(wait, verb) end
  else
    verdict, wait, writes = decide(self, limit, repaired, cost, false, left)
  end
  local remaining, reset = self.after()
  if writes and verb ~= 'PEEK' then
    if writes == 'forget' then
      call('DEL', key)
    else
      store(key, now, not bytes, self.next(remaining, reset))
    end
  end
  return five(verdict, limit, remaining, wait, reset)
end

