#!lua name=redis_throttle
-- redis-throttle without the module: the same verdicts, replies, errors and stored bytes.
--
--   FCALL rl_gcra 1 user:42 6 10 60 COST 2              as RL.GCRA user:42 6 10 60 COST 2
--   FCALL_RO rl_peek 1 user:42 GCRA 6 10 60             as RL.PEEK user:42 GCRA 6 10 60
--   FCALL rl_lease 1 jobs worker-7 3 30                 as RL.LEASE jobs worker-7 3 30
--   FCALL rl_all 2 {a}:u {a}:t "GCRA 6 10 60" "FIXED 9 60"
--                                    as RL.ALL {a}:u "GCRA 6 10 60" {a}:t "FIXED 9 60"
--
-- A function takes its key, then the arguments that the module's command has after the key. rl_all
-- and rl_peekall take all keys first, then one rule per key in the same order, each rule in one
-- argument. rl_version returns the version. A function for a feature that needs the module, such as
-- QUOTA, returns an error that says so.
--
-- scripts/lua-script.py joins this file from functions/parts/, and generates from it the script
-- functions/redis_throttle_script.lua, for EVALSHA. The script takes the command's name before its
-- arguments: EVALSHA sha 1 user:42 GCRA 6 10 60.
--
-- Arithmetic. Lua's numbers are exact up to 2^53, and no number that decides a verdict exceeds it:
-- times are in microseconds, and sums of times are relative to now. GCRA keeps the nanoseconds in a
-- second number. Products that do not fit are computed in limbs: see wide_numbers.
--
-- Differences from the module:
-- - A wait beyond 2^53 ms (285,000 years) is rounded to the nearest number that Lua has, and so is
--   the key's expiry. Only a debt left by a rule with a much higher rate takes that long.
-- - A key with reservations is an error.
-- - BLOCK does not replace the digits of CL.THROTTLE.
-- - SLIDINGLOG without the option SLOTS rounds to 1024 slots and ignores the module's
--   rl.sliding-log-slots.
-- - A script ends at the first command that the server refuses. So beyond maxmemory, REFUND, RENEW
--   and BLOCK fail, too. On a replica, a script fails only if its call writes.
-- - A value that another program stored is read whole before it is rejected. That takes time if the
--   value has hundreds of MB.
-- - Keyspace events are those of the commands called here. They equal the module's, except that a
--   state stored with a new expiry sends expire after set, and that a call added to a SLIDINGLOG
--   sends setrange instead of set.
--
-- The caller needs permission for all commands called here: del get pexpireat pexpiretime set
-- setrange time unlink zadd zcard zcount zrange zrangebyscore zrem zrevrange zscore; before Redis
-- 7.0 also pttl. If some of these are not permitted, a call may end in an error. A call with one
-- key has then changed the key completely or not at all. A call with several keys may have changed
-- only the first keys; the units taken from them return as if the call had been allowed.
--
-- Structure. An algorithm is a table of functions on one key at a time. Its function standing reads
-- the key's state. decide and settling apply calls to that state, as engine/src/call.rs does in the
-- module. An algorithm is created at its first use, because a script runs this file from the top at
-- every call.

local VERSION = '0.3.0'
-- The number of slots into which SLIDINGLOG divides its window if the option SLOTS is not given.
-- With a limit above the number of slots, it rounds times up to the next slot. The module's setting
-- rl.sliding-log-slots has this default.
local SLOTS_DEFAULT = 1024

local LIMIT_MAX = 1000000000000
local TOTAL_MAX = 2000000000000
local PERIOD_MIN, PERIOD_MAX = 1000, 31622400000000
local REFILL_MAX = 3155760000000000
local CLOCK_MAX = 7258118400000000
local INSTANT_MAX = 9007199254740991
local EXACT = 9007199254740992
local NEEDS_MODULE = ' needs the redis-throttle module'

-- The server's functions. A library sees them only from its first call on, not while it is loaded.
local byte, char, find, upper, pack, unpack, spread, floor, call, attempt
-- True if all commands of the server accept absolute expiry times.
local knows_expiry

local function bind()
  byte, char, find, upper = string.byte, string.char, string.find, string.upper
  pack, unpack, spread = struct.pack, struct.unpack, _G.unpack
  floor = math.floor
  call, attempt = redis.call, redis.pcall
  knows_expiry = redis.REDIS_VERSION_NUM ~= nil
end

local function now_us()
  local time = redis.call('TIME') -- the clock
  local now = time[1] * 1000000 + time[2]
  return now < CLOCK_MAX and now or CLOCK_MAX
end

-- Numbers beyond 2^53 --------------------------------------------------------------------------

-- Creates the arithmetic of wide numbers: whole numbers from 0 up in limbs of 8 bits, the lowest
-- limb first. Sums and products accept one wide and one plain operand. Both sides of a comparison
-- must be wide. A number may only be subtracted from one that is at least as large. A quotient is
-- rounded down; it is plain if a plain number holds it exactly.
local function wide_numbers()
  local wide = {}

  local function trimmed(limbs)
    local count = #limbs
    while count > 0 and limbs[count] == 0 do
      limbs[count] = nil
      count = count - 1
    end
    return setmetatable(limbs, wide)
  end

  local function new(number)
    if type(number) == 'table' then return number end
    local limbs, count = {}, 0
    while number > 0 do
      local low = number % 256
      count = count + 1
      limbs[count] = low
      number = (number - low) / 256
    end
    return setmetatable(limbs, wide)
  end

  -- Converts a wide number to a plain number: exact below 2^53, otherwise rounded.
  local function rounded(a)
    local number = 0
    for at = #a, 1, -1 do number = number * 256 + a[at] end
    return number
  end

  -- Converts a wide number to a plain number if that is exact; returns any other wide number
  -- unchanged.
  local function fitting(a)
    if #a <= 7 then
      local number = rounded(a)
      if number < EXACT then return number end
    end
    return a
  end

  function wide.__add(a, b)
    a, b = new(a), new(b)
    local sum, carry = {}, 0
    for at = 1, math.max(#a, #b) do
      local limb = (a[at] or 0) + (b[at] or 0) + carry
      sum[at] = limb % 256
      carry = limb >= 256 and 1 or 0
    end
    if carry > 0 then sum[#sum + 1] = carry end
    return setmetatable(sum, wide)
  end

  function wide.__sub(a, b)
    a, b = new(a), new(b)
    local rest, borrow = {}, 0
    for at = 1, #a do
      local limb = a[at] - (b[at] or 0) - borrow
      borrow = limb < 0 and 1 or 0
      rest[at] = limb + 256 * borrow
    end
    return trimmed(rest)
  end

  function wide.__mul(a, b)
    a, b = new(a), new(b)
    local product = {}
    for at = 1, #a + #b do product[at] = 0 end
    for i = 1, #a do
      local carry = 0
      for j = 1, #b do
        local limb = product[i + j - 1] + a[i] * b[j] + carry
        product[i + j - 1] = limb % 256
        carry = floor(limb / 256)
      end
      product[i + #b] = carry
    end
    return trimmed(product)
  end

  function wide.__lt(a, b)
    if #a ~= #b then return #a < #b end
    for at = #a, 1, -1 do
      if a[at] ~= b[at] then return a[at] < b[at] end
    end
    return false
  end

  function wide.__le(a, b) return not wide.__lt(b, a) end

  -- Returns the quotient and the remainder. With a divisor below 2^45, divides limb by limb. With a
  -- larger divisor, the quotient is small: estimates it and corrects the estimate.
  local function divided(a, b)
    local plain = fitting(new(b))
    a = new(a)
    if type(plain) == 'number' and plain < 35184372088832 then
      local quotient, rest = {}, 0
      for at = #a, 1, -1 do
        local dividend = rest * 256 + a[at]
        rest = dividend % plain
        quotient[at] = (dividend - rest) / plain
      end
      return fitting(trimmed(quotient)), rest
    end
    b = new(b)
    local quotient = floor(rounded(a) / rounded(b))
    while a < b * quotient do quotient = quotient - 1 end
    while b * (quotient + 1) <= a do quotient = quotient + 1 end
    return quotient, fitting(a - b * quotient)
  end

  function wide.__div(a, b) return (divided(a, b)) end

  function wide.__mod(a, b)
    local _, rest = divided(a, b)
    return rest
  end

  return { new = new, fitting = fitting, rounded = rounded }
end

-- The arithmetic of wide numbers, created when the first number must be wide.
local wide

local function widened(number)
  wide = wide or wide_numbers()
  return wide.new(number)
end

local function is_wide(number)
  return wide and type(number) == 'table'
end

-- Converts a number below 2^53 to a plain number; returns any other number unchanged.
local function plain(number)
  return is_wide(number) and wide.fitting(number) or number
end

-- Returns true if a number exceeds a plain bound. A wide number is 2^53 or more, so it exceeds any.
local function exceeds(number, bound)
  return is_wide(number) or number > bound
end

-- The longest span in ms whose microseconds fit into 64 bits. Only wide numbers can exceed it.
local SPAN_MAX_MS = 18446744073709552

-- Converts a span from microseconds to ms, rounded up.
local function ms(span)
  if wide and type(span) == 'table' then
    local whole = (span + 999) / 1000
    if is_wide(whole) then whole = wide.rounded(whole) end
    return whole < SPAN_MAX_MS and whole or SPAN_MAX_MS
  end
  local rest = span % 1000
  if rest == 0 then return span / 1000 end
  return (span - rest) / 1000 + 1
end

-- Returns the Unix time in ms, rounded up, at which a key must expire if its state expires `span`
-- after `now`.
local function expiry_ms(now, span)
  if wide and type(span) == 'table' then return ms(span + now) end
  local sum = now + span
  if sum < EXACT then return ms(sum) end
  local rest = now % 1000
  return (now - rest) / 1000 + ms(span + rest)
end

-- Errors ---------------------------------------------------------------------------------------

-- Returns an error reply for a failed call of the command `verb`. If one of several rules failed,
-- the number of that rule, `rule`, stands after the first word of the text. For a wrong number of
-- arguments, the text is the server's own.
local function failed(failure, verb, rule)
  local function integer(name, least, most)
    return 'ERR invalid ' .. name .. ': expected an integer from ' .. least .. ' to ' .. most
  end
  local function duration(name)
    return 'ERR invalid ' .. name .. ': expected a duration from 1ms to 366d, such as 60, 0.5, '
      .. '500ms or 1h'
  end
  local function refill(name)
    return 'ERR invalid ' .. name .. ': ' .. name .. ' x period / rate, the time to refill from '
      .. 'empty, must not exceed 36525d'
  end
  local function words(expected)
    return 'ERR wrong number of arguments: expected ' .. expected
  end
  local most, option = '1000000000000', 'ERR invalid option: '
  local texts = {
    arity = "ERR wrong number of arguments for 'rl." .. verb:lower() .. "' command",
    FIXED = words('FIXED limit window'),
    SLIDING = words('SLIDING limit window'),
    SLIDINGLOG = words('SLIDINGLOG limit window'),
    TOKENBUCKET = words('TOKENBUCKET capacity rate period'),
    LEAKYBUCKET = words('LEAKYBUCKET capacity rate period'),
    GCRA = words('GCRA burst rate period'),
    BACKOFF = words('BACKOFF attempts base max forget'),
    LEASE = words('LEASE id limit ttl'),
    limit = integer('limit', 1, most),
    burst = integer('burst', 1, most),
    capacity = integer('capacity', 1, most),
    rate = integer('rate', 1, most),
    cost = integer('cost', 0, most),
    window = duration('window'),
    period = duration('period'),
    rate_too_high = 'ERR invalid rate: rate / period must not exceed 1000000000 per second',
    burst_refill = refill('burst'),
    capacity_refill = refill('capacity'),
    attempts = integer('attempts', 1, 1000000),
    base = duration('base'),
    max = duration('max'),
    forget = duration('forget'),
    base_above_max = 'ERR invalid base: must not exceed max',
    max_not_below_forget = 'ERR invalid max: must be less than forget',
    id = 'ERR invalid id: expected 1 to 128 bytes',
    holders = integer('limit', 1, 1000000),
    ttl = duration('ttl'),
    duration = duration('duration'),
    lease_option = option .. 'expected LEAVE n, a holder has one permit',
    lease_not_here = 'ERR invalid algorithm: LEASE has no cost to charge or refund',
    option = option .. 'expected COST n, PARTIAL or LEAVE n',
    option_or_aligned = option .. 'expected COST n, PARTIAL, LEAVE n or ALIGNED',
    option_or_slots = option .. 'expected COST n, PARTIAL, LEAVE n or SLOTS n',
    no_option = option .. 'BACKOFF takes no options',
    repeated_cost = 'ERR repeated option: COST may be given once',
    repeated_aligned = 'ERR repeated option: ALIGNED may be given once',
    repeated_slots = 'ERR repeated option: SLOTS may be given once',
    missing_slots = 'ERR missing slots: expected SLOTS followed by an integer from 16 to 65536',
    slots = integer('slots', 16, 65536),
    repeated_leave = 'ERR repeated option: LEAVE may be given once',
    missing_leave = 'ERR missing leave: expected LEAVE followed by units or a percentage, such '
      .. 'as 20%',
    leave = 'ERR invalid leave: expected an integer from 0 to ' .. most .. ', or 0% to 100%',
    leave_not_here = option .. 'LEAVE is for commands that decide a call',
    repeated_partial = 'ERR repeated option: PARTIAL may be given once',
    partial_of_nothing = 'ERR invalid cost: with PARTIAL, expected an integer from 1 to ' .. most,
    partial_not_here = option .. 'PARTIAL is for RL.PEEK and commands that decide by one rule',
    missing_cost = 'ERR missing cost: expected COST followed by an integer from 0 to ' .. most,
    algorithm = 'ERR invalid algorithm: expected FIXED, SLIDING, SLIDINGLOG, TOKENBUCKET, '
      .. 'LEAKYBUCKET, GCRA, BACKOFF, QUOTA, LEASE, RESERVE or USE',
    too_many_rules = 'ERR too many rules: expected 1 to 16 pairs of a key and a rule',
    repeated_key = 'ERR repeated key: each key may be given once',
    wrong_type = 'WRONGTYPE the key does not hold a state of this algorithm',
    not_a_state = "WRONGTYPE the key does not hold a rate limiter's state",
    too_many_units = 'ERR invalid cost: the total of used units must not exceed 2000000000000',
    too_long = 'ERR invalid cost: the time until the key is reset must not exceed 36525d',
    -- Texts that the module does not have.
    keys = 'ERR wrong number of keys: expected 1',
    command = 'ERR unknown command of redis-throttle: see docs/without-the-module.md',
  }
  local text = texts[failure] or failure
  if rule and failure ~= 'arity' then
    text = text:gsub('^(%u+) ', '%1 rule ' .. rule .. ': ', 1)
  end
  return redis.error_reply(text)
end

-- Arguments ------------------------------------------------------------------------------------

-- A length in bytes above that of every name, and of every valid number without its leading zeros.
local WORD_LEN_MAX = 24

-- Removes leading zeros from a long word. Returns nil if the rest is still too long for a number.
-- An argument may have hundreds of MB, and the server would wait while it is read as a number.
local function shortened(word)
  local _, zeros = find(word, '^0*')
  if zeros > 0 and #word - zeros < WORD_LEN_MAX then return word:sub(zeros) end
end

-- Reads a number written in digits, with or without leading zeros. Returns nil for any other word,
-- and for a number that is out of bounds.
local function integer(word, least, most)
  if #word > WORD_LEN_MAX then word = shortened(word) end
  local number = word and not find(word, '%D') and tonumber(word)
  if number and number >= least and number <= most then return number end
end

-- Converts a word to a name in upper case, because names are not case-sensitive.
local function name_of(word)
  return upper(word:sub(1, WORD_LEN_MAX))
end

-- Caches the numbers read from limits and durations, so that rules in use are not parsed again. A
-- library keeps the cache from call to call, and empties it at WORDS_MAX entries so that it stays
-- small.
local limits_read, durations_read, words_read = {}, {}, 0
local WORDS_MAX = 1000

local function remember(words, word, number)
  if number and #word <= WORD_LEN_MAX then
    words_read = words_read + 1
    if words_read > WORDS_MAX then
      limits_read, durations_read, words_read = {}, {}, 0
    else
      words[word] = number
    end
  end
  return number
end

-- Reads a limit, burst, capacity or rate that is not in the cache.
local function units(word)
  return remember(limits_read, word, integer(word, 1, LIMIT_MAX))
end

-- Reads a duration that is not in the cache, and returns it in microseconds. Returns nil for any
-- other word, and for a duration that is out of bounds.
local function duration(word)
  if #word > WORD_LEN_MAX then word = shortened(word) end
  if not word then return end
  -- An optional point with up to six digits, then an optional unit.
  local whole, rest = word, ''
  if find(word, '%D') then
    whole, rest = word:match('^(%d+)(.*)$')
    if not whole then return end
  end
  local decimals, unit = rest:match('^%.(%d+)(.*)$')
  unit = unit or rest
  local unit_us = (unit == '' or unit == 's') and 1000000 or unit == 'ms' and 1000
    or unit == 'm' and 60000000 or unit == 'h' and 3600000000 or unit == 'd' and 86400000000
  if not unit_us or whole == '' then return end
  local span = tonumber(whole) * unit_us
  if decimals then
    if #decimals > 6 then return end
    local scale = 10 ^ #decimals
    -- Every unit except ms is a whole multiple of any scale.
    if unit_us % scale == 0 then
      span = span + tonumber(decimals) * (unit_us / scale)
    else
      local parts = tonumber(decimals) * unit_us
      if parts % scale ~= 0 then return end
      span = span + parts / scale
    end
  end
  if span >= PERIOD_MIN and span <= PERIOD_MAX then
    return remember(durations_read, word, span)
  end
end

-- Reads the value of LEAVE: units, or a percentage as the second result. Returns nil if it is
-- invalid.
local function leave(word)
  if word:byte(-1) ~= 37 then return integer(word, 0, LIMIT_MAX) end
  local percent = integer(word:sub(1, -2), 0, 100)
  if percent then return 0, percent end
end

-- Reads the options that begin at place `at`. own_name is the option that the algorithm has besides
-- those of every call, if it has one. Returns the cost, a table if PARTIAL or LEAVE is given (else
-- false), and the own option: true for ALIGNED, the number for SLOTS, false if it is not given; or
-- nil and the failure. The table has the fields partial, units and percent; the last two say what
-- must be left.
local function options(args, at, own_name)
  local cost, partial, own, units, percent
  while args[at] do
    local name = name_of(args[at])
    at = at + 1
    if name == 'COST' then
      if cost then return nil, 'repeated_cost' end
      if not args[at] then return nil, 'missing_cost' end
      cost = integer(args[at], 0, LIMIT_MAX)
      if not cost then return nil, 'cost' end
      at = at + 1
    elseif name == 'PARTIAL' then
      if partial then return nil, 'repeated_partial' end
      partial = true
    elseif name == 'LEAVE' then
      if units then return nil, 'repeated_leave' end
      if not args[at] then return nil, 'missing_leave' end
      units, percent = leave(args[at])
      if not units then return nil, 'leave' end
      at = at + 1
    elseif name == own_name then
      if own then return nil, 'repeated_' .. name:lower() end
      own = true
      if name == 'SLOTS' then
        if not args[at] then return nil, 'missing_slots' end
        own = integer(args[at], 16, 65536)
        if not own then return nil, 'slots' end
        at = at + 1
      end
    else
      return nil, own_name and 'option_or_' .. own_name:lower() or 'option'
    end
  end
  if partial and cost == 0 then return nil, 'partial_of_nothing' end
  local rarer = (partial or units) and { partial = partial, units = units, percent = percent }
  return cost or 1, rarer or false, own or false
end

-- The two functions below implement read, which is explained under Algorithms.
local function limit_and_window(args, at, own_name)
  local limit, window = args[at], args[at + 1]
  if not window then return nil, 'arity' end
  limit = limits_read[limit] or units(limit)
  if not limit then return nil, 'limit' end
  window = durations_read[window] or duration(window)
  if not window then return nil, 'window' end
  if not args[at + 2] then return 1, false, limit, window, false end
  local cost, rarer, own = options(args, at + 2, own_name)
  if not cost then return nil, rarer end
  return cost, rarer, limit, window, own
end

local function quota(args, at, size)
  local capacity, rate, period = args[at], args[at + 1], args[at + 2]
  if not period then return nil, 'arity' end
  capacity = limits_read[capacity] or units(capacity)
  if not capacity then return nil, size end
  rate = limits_read[rate] or units(rate)
  if not rate then return nil, 'rate' end
  period = durations_read[period] or duration(period)
  if not period then return nil, 'period' end
  if rate > 1000 * period then return nil, 'rate_too_high' end
  if capacity * period > REFILL_MAX
    and widened(capacity) * period > widened(REFILL_MAX) * rate then
    return nil, size .. '_refill'
  end
  if not args[at + 3] then return 1, false, capacity, rate, period end
  local cost, rarer = options(args, at + 3)
  if not cost then return nil, rarer end
  return cost, rarer, capacity, rate, period
end

-- States ---------------------------------------------------------------------------------------

-- Encodes an unsigned number in MessagePack's shortest form, the only form that is valid here.
local function spelled(number)
  if number < 128 then return char(number) end
  if number < 256 then return char(0xcc, number) end
  if number < 65536 then return pack('>BI2', 0xcd, number) end
  if number < 4294967296 then return pack('>BI4', 0xce, number) end
  return pack('>BI8', 0xcf, number)
end

-- Encodes the start of an array: its size, its kind and an instant.
local function front_of(head, kind, instant)
  if instant >= 4294967296 then return pack('>BBBI8', head, kind, 0xcf, instant) end
  return char(head, kind) .. spelled(instant)
end

-- Encodes an array of a kind, an instant and a count.
local function pair(kind, instant, count)
  if count < 128 and instant >= 4294967296 then
    return pack('>BBBI8B', 0x93, kind, 0xcf, instant, count)
  end
  return front_of(0x93, kind, instant) .. spelled(count)
end

-- Returns the number encoded at a place, and the place after its encoding; nil if no valid number
-- is there. A number of 2^53 or more is rounded, but not below 2^53.
local function number_at(bytes, at)
  local first = byte(bytes, at)
  if not first then return end
  if first < 128 then return first, at + 1 end
  local rest = #bytes - at
  if first == 0xcf and rest >= 8 then
    local number = unpack('>I8', bytes, at + 1)
    if number >= 4294967296 then return number, at + 9 end
  elseif first == 0xce and rest >= 4 then
    local number = unpack('>I4', bytes, at + 1)
    if number >= 65536 then return number, at + 5 end
  elseif first == 0xcd and rest >= 2 then
    local number = unpack('>I2', bytes, at + 1)
    if number >= 256 then return number, at + 3 end
  elseif first == 0xcc and rest >= 1 then
    local number = byte(bytes, at + 1)
    if number >= 128 then return number, at + 2 end
  end
end

-- Decodes an array of a kind and `count` numbers, 2 to 4. Returns the place after the array, and
-- the numbers; nil for anything else.
local function numbers(bytes, count)
  if byte(bytes, 1) ~= 0x91 + count then return end
  local a, b, c, d, at
  a, at = number_at(bytes, 3)
  if a then b, at = number_at(bytes, at) end
  if b and count > 2 then c, at = number_at(bytes, at) end
  if c and count > 3 then d, at = number_at(bytes, at) end
  return at, a, b, c, d
end

-- Decodes a state of this kind with exactly two numbers, and returns them; nil for anything else.
local function pair_of(bytes, kind)
  if #bytes == 12 then
    local head, its_kind, mark, instant, count = unpack('>BBBI8B', bytes)
    if head == 0x93 and its_kind == kind and mark == 0xcf and instant >= 4294967296
      and count < 128 then
      return instant, count
    end
  end
  if byte(bytes, 2) ~= kind then return end
  local at, instant, count = numbers(bytes, 2)
  if at == #bytes + 1 then return instant, count end
end

-- Bans -----------------------------------------------------------------------------------------

-- Reads the ban in a stored value. Returns the time left, the length of the ban, and true if more
-- than its length is left, because the clock stepped back: the time left is then that length.
-- Returns false for a ban that has ended, and nil if the value is not a ban.
local function ban_in(bytes, now)
  local ends, length
  if type(bytes) == 'string' then ends, length = pair_of(bytes, 0xf3) end
  if not ends or ends > INSTANT_MAX or length < PERIOD_MIN or length > PERIOD_MAX then return end
  if ends <= now then return false end
  if ends - now > length then return length, length, true end
  return ends - now, length, false
end

-- Algorithms -----------------------------------------------------------------------------------

-- Each algorithm is a table of functions on one key at a time. The function standing reads the
-- key's state, and the functions below it work on that state. Spans are in microseconds, and
-- numbers that may not fit below 2^53 are wide.
--
--   read(args, at, term)              reads the arguments of a rule from at on. Returns the cost,
--                                     what options returns for PARTIAL and LEAVE, and the numbers
--                                     of the rule; or nil and the first failure from left to right
--   term                              an argument for read: the name of the capacity in its errors,
--                                     or an additional option besides those of every call
--   standing(bytes, now, cost, ...)   reads the stored bytes, nil if there are none, under the
--                                     numbers of a rule. cost is the amount to take, with the
--                                     units to leave, or to give back.
--                                     Returns the limit, and true if it moved the state to now
--                                     because the clock stepped back; nil if the bytes are not a
--                                     state of the algorithm.
--   lacks(cost)                       returns the time until there is room for cost, nil if there
--                                     is room now
--   in_use()                          returns the used units, rounded up
--   take(cost, is_charged), give_back(cost)
--   after()                           returns the units left, and the time until none is in use
--   wait()                            returns the delay of an allowed call; only LEAKYBUCKET has it
--   next(remaining, reset)            returns the bytes to store, how long after now they expire,
--                                     and how much longer the key may live; for SLIDINGLOG also
--                                     the offset at which to store the bytes

-- GCRA: the state is the theoretical arrival time, in microseconds and additional nanoseconds.
local function gcra()
  -- The numbers of the rule and the values derived from them. The next call reuses them if it has
  -- the same rule.
  local burst, rate, period, interval_us, interval_ns, tolerance_us, tolerance_ns, power, slack
  local now, owed_us, owed_ns
  -- The time owed after a charge, if the two numbers cannot hold it. The charge is then refused.
  local owed_beyond

  -- Multiplies the rule's emission interval by a count.
  local function intervals(count)
    local ns = count * interval_ns
    local rest = ns % 1000
    return count * interval_us + (ns - rest) / 1000, rest
  end

  -- Returns the time in nanoseconds as the high and the low half of 64 bits.
  local function halves(us, ns)
    local low_us = us % 4294967296
    local low = low_us * 1000 + ns
    local rest = low % 4294967296
    return (us - low_us) / 4294967296 * 1000 + (low - rest) / 4294967296, rest
  end

  -- Returns the time from now to the stored arrival time, in microseconds and additional
  -- nanoseconds, and the exponent stored with it. The time is 0 if the arrival time has passed.
  local function stored(bytes)
    local head, kind, mark, high, low, exponent
    if #bytes == 12 then
      head, kind, mark, high, low, exponent = unpack('>BBBI4I4B', bytes)
      if mark ~= 0xcf or high == 0 then return end
    else
      local at
      head, kind = byte(bytes, 1, 2)
      at, low, exponent = numbers(bytes, 2)
      if at ~= #bytes + 1 or low >= 4294967296 then return end
      high = 0
    end
    if head ~= 0x93 or kind ~= 0xfa or exponent > 62 then return end
    -- Reject a time after the latest valid arrival time: the last instant, plus the longest
    -- tolerance and its rounding.
    if high > 2831909864 or high == 2831909864 and low > 3641183256 then return end
    local rest = high % 1000
    local low_ns = rest * 4294967296 + low
    local ns = low_ns % 1000
    -- If this difference is not exact, it exceeds every bound.
    local us = (high - rest) / 1000 * 4294967296 - now + (low_ns - ns) / 1000
    if us < 0 then us, ns = 0, 0 end
    return us, ns, exponent
  end

  local function is_beyond_tolerance(us, ns)
    return us > tolerance_us or us == tolerance_us and ns > tolerance_ns
  end

  -- Returns true if the time exceeds 2^exponent ns.
  local function is_beyond_power(us, ns, exponent)
    local high, low = halves(us, ns)
    if exponent < 32 then return high > 0 or low > 2 ^ exponent end
    local power = 2 ^ (exponent - 32)
    return high > power or high == power and low > 0
  end

  -- Returns the smallest exponent for which 2^exponent ns covers the time.
  local function covering_power(us, ns)
    local high, low = halves(us, ns)
    local mantissa, exponent = math.frexp(high > 0 and high or low)
    local is_exact = mantissa == 0.5 and (high == 0 or low == 0)
    return (high > 0 and 32 or 0) + (is_exact and exponent - 1 or exponent)
  end

  local function standing(bytes, at, _, its_burst, its_rate, its_period)
    now = at
    if its_burst ~= burst or its_rate ~= rate or its_period ~= period then
      -- The burst is set to nil first and recorded last, so that these values are never reused if
      -- FUNCTION KILL ends the call in between.
      burst = nil
      local rest = its_period % its_rate
      interval_us = (its_period - rest) / its_rate
      rest = rest * 1000 + its_rate - 1
      interval_ns = (rest - rest % its_rate) / its_rate
      if interval_ns == 1000 then interval_us, interval_ns = interval_us + 1, 0 end
      tolerance_us, tolerance_ns = intervals(its_burst)
      power = covering_power(tolerance_us, tolerance_ns)
      slack = floor((tolerance_ns > 0 and tolerance_us + 1 or tolerance_us) / 8)
      burst, rate, period = its_burst, its_rate, its_period
    end
    owed_us, owed_ns, owed_beyond = 0, 0, nil
    if bytes then
      local us, ns, exponent = stored(bytes)
      if not us then return end
      if is_beyond_tolerance(us, ns) and is_beyond_power(us, ns, exponent) then
        owed_us, owed_ns = tolerance_us, tolerance_ns
        return burst, true
      end
      owed_us, owed_ns = us, ns
    end
    return burst, false
  end

  local function lacks(cost)
    local us, ns = intervals(cost)
    us, ns = us + owed_us, ns + owed_ns
    if ns >= 1000 then us, ns = us + 1, ns - 1000 end
    if is_beyond_tolerance(us, ns) then
      return us - tolerance_us + (ns > tolerance_ns and 1 or 0)
    end
  end

  local function in_use()
    local owed_plain, interval_plain = owed_us * 1000 + owed_ns, interval_us * 1000 + interval_ns
    if owed_plain + interval_plain < EXACT then
      return floor((owed_plain + interval_plain - 1) / interval_plain)
    end
    local interval = widened(interval_us) * 1000 + interval_ns
    local owed = owed_beyond or widened(owed_us) * 1000 + owed_ns
    return (owed + interval - 1) / interval
  end

  local function take(cost)
    local us, ns = intervals(cost)
    us, ns = us + owed_us, ns + owed_ns
    if ns >= 1000 then us, ns = us + 1, ns - 1000 end
    if us >= EXACT then
      local owed = widened(owed_us) * 1000 + owed_ns
      owed = owed + (widened(interval_us) * 1000 + interval_ns) * cost
      local most = widened(4294967296) * 4294967296 - 1
      owed_beyond = owed < most and owed or most
    end
    owed_us, owed_ns = us, ns
  end

  local function give_back(cost)
    local us, ns = intervals(cost)
    us, ns = owed_us - us, owed_ns - ns
    if ns < 0 then us, ns = us - 1, ns + 1000 end
    if us < 0 then us, ns = 0, 0 end
    owed_us, owed_ns = us, ns
  end

  local function after()
    local reset = owed_ns > 0 and owed_us + 1 or owed_us
    local us, ns = tolerance_us - owed_us, tolerance_ns - owed_ns
    if ns < 0 then us, ns = us - 1, ns + 1000 end
    if us < 0 then return 0, reset end
    local room = us * 1000 + ns
    local remaining = floor(room / (interval_us * 1000 + interval_ns))
    if room < EXACT then return remaining, reset end
    -- The quotient was rounded, so it is off by at most one. Correct it.
    local whole_us, whole_ns = intervals(remaining)
    if whole_us > us or whole_us == us and whole_ns > ns then
      remaining = remaining - 1
    else
      whole_us, whole_ns = intervals(remaining + 1)
      if whole_us < us or whole_us == us and whole_ns <= ns then remaining = remaining + 1 end
    end
    return remaining, reset
  end

  local function next(_, reset)
    local high, low = halves(now + owed_us, owed_ns)
    if now + owed_us >= EXACT then
      high, low = halves(now, 0)
      local owed_high, owed_low = halves(owed_us, owed_ns)
      high, low = high + owed_high, low + owed_low
      if low >= 4294967296 then high, low = high + 1, low - 4294967296 end
    end
    local exponent = power
    if is_beyond_tolerance(owed_us, owed_ns) then exponent = covering_power(owed_us, owed_ns) end
    local bytes
    if high > 0 then
      bytes = pack('>BBBI4I4B', 0x93, 0xfa, 0xcf, high, low, exponent)
    else
      bytes = char(0x93, 0xfa) .. spelled(low) .. char(exponent)
    end
    return bytes, reset, slack
  end

  return {
    read = quota, term = 'burst', standing = standing, lacks = lacks, in_use = in_use,
    take = take, give_back = give_back, after = after, next = next,
  }
end

-- Token bucket and leaky bucket. Usage is counted in parts: a unit has as many parts as the period
-- has microseconds, and rate parts drain per microsecond.
local function bucket(queues)
  local now, capacity, rate, period, refill
  -- unit: the parts of a unit. full: the parts of a full bucket. used: the parts in use at origin,
  -- when draining starts. fits: true if these three numbers fit below 2^53; if they may not fit,
  -- all three are wide.
  local unit, full, used, origin, fits

  -- Returns the contents of a state: its time, then the units, the fraction of a unit and the debt
  -- at that time.
  local function stored(bytes)
    local kind = byte(bytes, 2)
    local in_debt = kind == (queues and 0xf8 or 0xf9)
    if not in_debt and kind ~= (queues and 0xfb or 0xfc) then return end
    local at, updated, units, debt, fraction
    if in_debt and queues then
      at, updated, units, debt, fraction = numbers(bytes, 4)
    elseif in_debt then
      at, updated, debt, fraction = numbers(bytes, 3)
      units = 0
    else
      at, updated, units, fraction = numbers(bytes, 3)
      debt = 0
    end
    if at ~= #bytes + 1 or updated > INSTANT_MAX or fraction >= PERIOD_MAX then return end
    if in_debt and (debt < 1 or debt > TOTAL_MAX or queues and units < 1) then return end
    if units > (queues and LIMIT_MAX or LIMIT_MAX - 1) then return end
    if queues and units == 0 and fraction == 0 then return end
    return updated, units, fraction, debt
  end

  -- Returns the parts used in a stored bucket. A fraction stored under a longer period may have
  -- more parts than a unit has under this period. The whole unit then counts as used, or as unpaid
  -- if the fraction belongs to a debt.
  local function used_in(units, fraction, debt)
    local paid = 0
    if debt > 0 then
      if fraction < period then paid = fraction end
      fraction = 0
    end
    local held
    if queues then
      held = units * unit + (fraction < period and fraction or period)
      if full < held then held = full end
    else
      held = units * unit + (fraction < period and fraction or 0)
      held = held < full and full - held or unit - unit
    end
    return held + debt * unit - paid
  end

  -- Returns the time from now until this number of parts has drained.
  local function drained_in(parts)
    local whole = (parts + (rate - 1)) / rate
    if fits or not is_wide(whole) then whole = floor(whole) end
    if whole == 0 then return 0 end
    return origin > now and whole + (origin - now) or whole
  end

  local function standing(bytes, at, cost, its_capacity, its_rate, its_period)
    now, capacity, rate, period = at, its_capacity, its_rate, its_period
    origin = now
    -- The margin of 2 covers the fraction and the rounding of divisions.
    local most = capacity + cost + 2
    local updated, units, fraction, debt
    if bytes then
      updated, units, fraction, debt = stored(bytes)
      if not updated then return end
      most = most + units + debt
    end
    fits = most * period + rate < EXACT
    unit = fits and period or widened(period)
    full = capacity * unit
    used = updated and used_in(units, fraction, debt) or unit - unit
    refill = floor((full + (rate - 1)) / rate)
    if not updated or (fits and used or plain(used)) == 0 then return capacity, false end
    if updated > now then
      if updated - now > refill then return capacity, true end
      origin = updated
      return capacity, false
    end
    local drained = (fits and rate or widened(rate)) * (now - updated)
    used = drained < used and used - drained or unit - unit
    return capacity, false
  end

  local function lacks(cost)
    local wanted = used + cost * unit
    if full < wanted then return drained_in(wanted - full) end
  end

  local function in_use()
    local units = (used + (period - 1)) / period
    return is_wide(units) and units or floor(units)
  end

  local function take(cost) used = used + cost * unit end

  local function give_back(cost)
    local given = cost * unit
    used = given < used and used - given or unit - unit
  end

  local function after()
    local remaining = used < full and floor((full - used) / period) or 0
    return remaining, drained_in(used)
  end

  local function wait() return drained_in(used) end

  local function next(remaining, reset)
    local bytes
    if full < used then
      local owed = used - full
      local debt = floor((owed + (period - 1)) / period)
      local paid = plain(debt * unit - owed)
      if queues then
        bytes = front_of(0x95, 0xf8, origin) .. spelled(capacity) .. spelled(debt) .. spelled(paid)
      else
        bytes = front_of(0x94, 0xf9, origin) .. spelled(debt) .. spelled(paid)
      end
    elseif queues then
      local fraction = plain(used % period)
      local units = floor((used - fraction) / period)
      bytes = front_of(0x94, 0xfb, origin) .. spelled(units) .. spelled(fraction)
    else
      local fraction = full - used - remaining * unit
      if not fits then fraction = plain(fraction) end
      bytes = front_of(0x94, 0xfc, origin) .. spelled(remaining) .. spelled(fraction)
    end
    return bytes, reset, floor(refill / 8)
  end

  return {
    read = quota, term = 'capacity', standing = standing, lacks = lacks, in_use = in_use,
    take = take, give_back = give_back, after = after, next = next, wait = queues and wait or nil,
  }
end

-- Fixed window: it opens with its first call, or is aligned to multiples of its length.
local function fixed()
  local now, limit, window, start, used, until_end

  local function standing(bytes, at, _, its_limit, its_window, aligned)
    now, limit, window = at, its_limit, its_window
    local fresh = aligned and now - now % window or now
    if not bytes then
      start, used = fresh, 0
      until_end = fresh - now + window
      return limit, false
    end
    start, used = pair_of(bytes, 0xff)
    if not start or start > INSTANT_MAX or used < 1 or used > TOTAL_MAX then
      local has_reservations = byte(bytes, 1) == 0x93 and byte(bytes, 2) == 0xf5
        and bytes:sub(-18, -17) == '\196\016'
      return nil, has_reservations and 'ERR a key with reservations' .. NEEDS_MODULE or nil
    end
    local repaired = start - now > window
    if repaired then start = fresh end
    until_end = (aligned and start - start % window or start) - now + window
    if until_end <= 0 then
      start, used = fresh, 0
      until_end = fresh - now + window
    end
    return limit, repaired
  end

  local function lacks(cost)
    if used + cost > limit then return until_end end
  end

  local function in_use() return used end

  local function take(cost) used = used + cost end

  local function give_back(cost) used = used > cost and used - cost or 0 end

  local function after()
    return used < limit and limit - used or 0, used == 0 and 0 or until_end
  end

  local function next()
    return pair(0xff, start, used), start - now + window, 0
  end

  return {
    read = limit_and_window, term = 'ALIGNED', standing = standing, lacks = lacks,
    in_use = in_use, take = take, give_back = give_back, after = after, next = next,
  }
end

-- Sliding window: the current window, and the visible part of the previous one.
local function sliding()
  local now, limit, window, start, previous, current, estimate
  local COUNT_MAX = 1000000000000000

  -- Returns a x b / c, rounded down.
  local function scaled(a, b, c)
    local product = a * b
    if product < EXACT then return (product - product % c) / c end
    return widened(a) * b / c
  end

  -- Returns a x b / c, rounded up.
  local function scaled_up(a, b, c)
    local product = a * b + c - 1
    if product < EXACT then return (product - product % c) / c end
    return (widened(a) * b + (c - 1)) / c
  end

  local function estimated()
    local overlap = start < now and window - (now - start) or window
    local faded = overlap > 0 and previous > 0 and scaled_up(previous, overlap, window) or 0
    return faded + current
  end

  -- Returns the time from the start of a window until the previous window's count, `count`, has
  -- faded to `room`.
  local function fades_to(count, room)
    local overlap = count > 0 and scaled(room, window, count) or window
    return exceeds(overlap, window) and 0 or window - overlap
  end

  local function standing(bytes, at, _, its_limit, its_window)
    now, limit, window = at, its_limit, its_window
    local current_start = now - now % window
    local repaired = false
    if bytes then
      if byte(bytes, 2) ~= 0xfe then return end
      local ends
      ends, start, previous, current = numbers(bytes, 3)
      if ends ~= #bytes + 1 or start > INSTANT_MAX or previous > COUNT_MAX
        or current < 1 or current > COUNT_MAX then
        return
      end
      local into = start % window
      if into > 0 then
        -- A rule with another window wrote this state: both counts together become the current
        -- count.
        start, previous, current = start - into, 0, previous + current
        if current > COUNT_MAX then current = COUNT_MAX end
      end
      if start - now > window then
        start, repaired = current_start, true
      elseif start < current_start then
        if start + window == current_start then
          start, previous, current = current_start, current, 0
        else
          start, previous, current = current_start, 0, 0
        end
      end
    else
      start, previous, current = current_start, 0, 0
    end
    estimate = estimated()
    return limit, repaired
  end

  local function lacks(cost)
    if estimate + cost <= limit then return end
    local free, after = limit - cost, start - now
    if free >= current then
      after = after + fades_to(previous, free - current)
    else
      -- There is no room in this window. In the next one, the current count becomes the previous
      -- count.
      after = after + window + fades_to(current, free)
    end
    return after > 0 and after or 0
  end

  local function in_use() return estimate end

  local function take(cost) current, estimate = current + cost, estimate + cost end

  local function give_back(cost)
    if cost > current then
      local left = previous - (cost - current)
      previous, current = left > 0 and left or 0, 0
    else
      current = current - cost
    end
    estimate = estimated()
    if current > 0 then return end
    -- Only the previous window has a count left. The state is stored as if that window were the
    -- current one.
    previous, current = 0, previous
    if start >= window then
      start = start - window
    else
      -- The first window of all times has no window before it: the rest counts as used in the first
      -- window.
      estimate = current
    end
  end

  local function expires_in()
    if current > 0 then return start - now + 2 * window end
    return previous > 0 and start - now + window or 0
  end

  local function after()
    local reset = expires_in()
    return estimate < limit and limit - estimate or 0, reset > 0 and reset or 0
  end

  local function next()
    local bytes = front_of(0x94, 0xfe, start) .. spelled(previous) .. spelled(current)
    return bytes, expires_in(), 0
  end

  return {
    read = limit_and_window, standing = standing, lacks = lacks, in_use = in_use, take = take,
    give_back = give_back, after = after, next = next,
  }
end

-- Backoff: some attempts are free; each further attempt has a longer delay.
local function backoff()
  local now, attempts, base, max, forget, last, count
  local COUNT_MAX = 4294967295

  local function read(args, at)
    local attempts, base, max, forget = args[at], args[at + 1], args[at + 2], args[at + 3]
    if not forget then return nil, 'arity' end
    attempts = integer(attempts, 1, 1000000)
    if not attempts then return nil, 'attempts' end
    base = durations_read[base] or duration(base)
    if not base then return nil, 'base' end
    max = durations_read[max] or duration(max)
    if not max then return nil, 'max' end
    forget = durations_read[forget] or duration(forget)
    if not forget then return nil, 'forget' end
    if base > max then return nil, 'base_above_max' end
    if max >= forget then return nil, 'max_not_below_forget' end
    if args[at + 4] then return nil, 'no_option' end
    return 1, false, attempts, base, max, forget
  end

  local function standing(bytes, at, _, its_attempts, its_base, its_max, its_forget)
    now, attempts, base, max, forget = at, its_attempts, its_base, its_max, its_forget
    last, count = now, 0
    if not bytes then return attempts, false end
    local stored_last, stored_count = pair_of(bytes, 0xf7)
    if not stored_last or stored_last > INSTANT_MAX
      or stored_count < 1 or stored_count > COUNT_MAX then
      return
    end
    if stored_last - now > forget then
      count = stored_count
      return attempts, true
    end
    if stored_last - now + forget > 0 then last, count = stored_last, stored_count end
    return attempts, false
  end

  local function lacks()
    local paid = count - attempts
    if paid < 0 then return end
    local delay = base * 2 ^ paid
    local after = last - now + (delay < max and delay or max)
    if after > 0 then return after end
  end

  local function in_use() return count end

  local function take(cost)
    count = count < COUNT_MAX and count + cost or COUNT_MAX
    -- A clock that steps back does not shorten a delay.
    if last < now then last = now end
  end

  local function give_back(cost) count = count > cost and count - cost or 0 end

  local function after()
    return count < attempts and attempts - count or 0, count > 0 and last - now + forget or 0
  end

  local function next()
    return pair(0xf7, last, count), last - now + forget, floor(forget / 8)
  end

  return {
    read = read, standing = standing, lacks = lacks, in_use = in_use, take = take,
    give_back = give_back, after = after, next = next,
  }
end

-- Sliding log: stores every call in an entry of 12 bytes, six for the microseconds since the base
-- and six for the running total. Entries are numbered from 0 here.

-- The largest number in six bytes.
local SIX_BYTES_MAX = 281474976710655

-- Returns the functions that read a log.
local function log_reader()
  -- log: the stored log. base: the instant from which it counts. front: the number of bytes before
  -- the entries.
  local log, base, front

  -- Returns the instant of an entry, and the running total at the entry.
  local function entry(index)
    local offset, total = unpack('>I6I6', log, front + 12 * index + 1)
    return base + offset, total
  end

  -- Returns the number of the first entry in from..to - 1 for which comes_before is false; `to` if
  -- there is no such entry.
  local function first_not(from, to, comes_before)
    while from < to do
      local middle = floor((from + to) / 2)
      if comes_before(entry(middle)) then from = middle + 1 else to = middle end
    end
    return from
  end

  -- Reads the bytes of a log. Returns its base, its coarsest rounding, the number of its entries,
  -- and the number of bytes before them; nil if the bytes are not a log.
  local function read(bytes)
    if byte(bytes, 2) ~= 0xfd then return end
    local at, its_base, slot = numbers(bytes, 2)
    if not at or its_base > INSTANT_MAX or slot < 1 or slot > PERIOD_MAX then return end
    local count = (#bytes - at + 1) / 12
    if count < 1 or count % 1 ~= 0 then return end
    log, base, front = bytes, its_base, at - 1
    local first, first_total = entry(0)
    local newest, newest_total = entry(count - 1)
    if first == base and first_total > 0 and first_total <= newest_total
      and newest - base <= INSTANT_MAX - base then
      return base, slot, count, front
    end
  end

  -- Frees the bytes, which may be large: they would stay in memory until the next call.
  local function forget() log = nil end

  return { entry = entry, first_not = first_not, read = read, forget = forget }
end

-- Returns the functions that encode a log. `entry` reads an entry of the stored log.
local function log_writer(entry)
  local writer = {}

  -- Encodes the head of a log.
  function writer.header(base, slot)
    return front_of(0x93, 0xfd, base) .. spelled(slot)
  end

  -- Encodes an entry relative to an instant and a total. A value that does not fit into six bytes
  -- becomes the largest that fits. Only a forged log produces such values.
  function writer.entry(instant, total, from, total_before)
    local offset = instant > from and instant - from or 0
    total = total > total_before and total - total_before or 0
    return pack('>I6I6', offset < SIX_BYTES_MAX and offset or SIX_BYTES_MAX,
      total < SIX_BYTES_MAX and total or SIX_BYTES_MAX)
  end

  -- Encodes the log of the entries from..to - 1 and a new last entry, the instant `last` with the
  -- running total `last_total`. Only the ends of a stored log are checked, so a forged log may be
  -- out of order between them. The log written here is always readable.
  function writer.rewritten(from, to, slot, last, last_total)
    local total_before = 0
    if from > 0 then
      local _
      _, total_before = entry(from - 1)
    end
    local newest_total = last_total > total_before and last_total or total_before + 1
    local instants, totals, kept = {}, {}, 0
    for index = from, to - 1 do
      local instant, total = entry(index)
      if instant > last then instant = last end
      if total <= total_before then total = total_before + 1 end
      if total > newest_total then total = newest_total end
      -- Of entries with the same instant only the last one is kept.
      if kept == 0 or instants[kept] ~= instant then kept = kept + 1 end
      instants[kept], totals[kept] = instant, total
    end
    if kept == 0 or instants[kept] ~= last then kept = kept + 1 end
    instants[kept], totals[kept] = last, newest_total
    local base = instants[1]
    local parts = { writer.header(base, slot) }
    for index = 1, kept do
      parts[index + 1] = writer.entry(instants[index], totals[index], base, total_before)
    end
    return table.concat(parts)
  end

  return writer
end

local function sliding_log()
  local reader = log_reader()
  local entry, first_not = reader.entry, reader.first_not
  local writer = log_writer(entry)
  local now, limit, window, slots
  -- grid: the width of a slot under this rule. rule_slot: the step to which this rule rounds
  -- instants up. Both in microseconds.
  local grid, rule_slot
  -- base: the instant from which the stored log counts, nil if there is none. slot: its coarsest
  -- rounding. count: the number of its entries. front: the number of bytes before the entries.
  local base, slot, count, front
  -- dead: the number of expired entries. passed: the running total at the last expired entry.
  -- used: the units in use.
  local dead, passed, used
  -- A change keeps the entries from kept_from to kept_to - 1, and puts one entry after them: the
  -- instant last with the running total last_total.
  local kept_from, kept_to, last, last_total
  -- If the clock stepped back: the instant to which the entries after the kept entries are moved.
  local moved_to
  -- True if a change rewrites the whole log, even if only its end changes.
  local rewrites

  -- Returns now, rounded up to the slot.
  local function rounded_now()
    local into = now % rule_slot
    return into == 0 and now or now - into + rule_slot
  end

  local function standing(bytes, at, _, its_limit, its_window, own_slots)
    now, limit, window, slots = at, its_limit, its_window, own_slots or SLOTS_DEFAULT
    grid = floor((window + slots - 1) / slots)
    rule_slot = limit <= slots and 1 or grid
    base, moved_to, rewrites = nil, nil, false
    dead, passed, used, kept_from, kept_to = 0, 0, 0, 0, 0
    last, last_total = now, 0
    if not bytes then return limit, false end
    base, slot, count, front = reader.read(bytes)
    if not base then return reader.forget() end
    last, last_total = entry(count - 1)
    local since = now - window
    -- No entry is earlier than the base.
    if base <= since then
      dead = first_not(0, count, function(instant) return instant <= since end)
      if dead > 0 then
        local _
        _, passed = entry(dead - 1)
      end
    end
    used = last_total > passed and last_total - passed or 0
    kept_to = count
    if last - now > (window > slot and window or slot) then
      kept_from = dead
      kept_to = first_not(dead, count, function(instant) return instant <= now end)
      moved_to = rounded_now()
      last, rewrites = moved_to, true
    elseif dead > 0 and dead * 2 >= count - dead then
      kept_from = dead
    end
    return limit, rewrites
  end

  -- Returns the instant at which `excess` units, of those in use, are free again.
  local function freed_at(excess)
    local freed = last
    if base then
      local index = first_not(dead, kept_to, function(_, total)
        return total - passed < excess
      end)
      if index < kept_to then freed = entry(index) end
    end
    return freed + window
  end

  local function lacks(cost)
    if used + cost <= limit then return end
    local after = freed_at(used - (limit - cost)) - now
    return after > 0 and after or 0
  end

  local function in_use() return used end

  -- Returns the number of stale entries at the end of the log. A refund makes an entry stale by
  -- overwriting it with a copy of the last valid entry.
  local function stale_entries()
    local _, newest_total = entry(count - 1)
    return count - 1 - first_not(dead, count - 1, function(_, total)
      return total < newest_total
    end)
  end

  -- Returns true if rewriting the remaining entries costs less than overwriting the stale entries
  -- again.
  local function is_too_many(stale)
    local stays = kept_to > dead and kept_to - dead or 0
    return stale > floor(math.sqrt(2 * stays)) + 1
  end

  -- Excludes the stale entries from those that a change keeps.
  local function overwrite_stale()
    local _, before = entry(kept_to - 2)
    if before ~= last_total then return end
    local stale = stale_entries()
    kept_to = kept_to - stale
    if is_too_many(stale) then rewrites, kept_from = true, dead end
  end

  local function take(cost, is_charged)
    if is_charged and not moved_to and kept_to - kept_from >= slots then
      -- In a log with as many entries as slots, a charge is rounded under any limit.
      rule_slot = grid
    end
    if not rewrites and kept_to - kept_from > 1 then overwrite_stale() end
    local rounded = rounded_now()
    last = moved_to or (last > rounded and last or rounded)
    last_total, used = last_total + cost, used + cost
  end

  -- Returns true if a refund should rewrite the log instead of overwriting the removed entries.
  local function is_worth_rewriting(stale)
    local stays = kept_to > dead and kept_to - dead or 0
    local most = (rule_slot > 1 and slots or 2 * slots) + 1
    local counting = used < most and used or most
    return count > floor((counting + 1) * 3 / 2) + 1
      or count - kept_to > stays + 1
      or is_too_many(stale)
  end

  local function give_back(cost)
    local given = cost < used and cost or used
    used = used - given
    last_total = last_total > given and last_total - given or 0
    if not base then return end
    local stale = stale_entries()
    -- The first entry that reaches the remaining total becomes the last entry.
    local reached = first_not(dead, kept_to, function(_, total) return total < last_total end)
    if reached < kept_to then
      last = entry(reached)
      kept_to = first_not(reached, kept_to, function(_, total) return total <= last_total end)
      if moved_to ~= last then moved_to = nil end
    end
    local _, oldest_total = entry(0)
    -- If the remaining total is below that of the oldest entry, keep no entry. In a forged log, in
    -- which totals may fall, this can happen after any refund.
    if last_total < oldest_total then kept_to = kept_from end
    if rewrites or is_worth_rewriting(stale) then
      rewrites = true
      kept_from = dead < kept_to and dead or kept_to
    end
  end

  local function after()
    local reset = used > 0 and last + window - now or 0
    return used < limit and limit - used or 0, reset > 0 and reset or 0
  end

  local function next()
    local expires_in, slack = last + window - now, floor(window / 8)
    if not base then
      local bytes = writer.header(last, rule_slot) .. writer.entry(last, last_total, last, 0)
      return bytes, expires_in, slack
    end
    local from, to = kept_from, kept_to
    if to - 1 >= from then
      local instant, total = entry(to - 1)
      -- A kept entry at the same instant is replaced by the new entry, which has the new total.
      if instant == last and (total ~= last_total or rewrites) then to = to - 1 end
    end
    if last - base > SIX_BYTES_MAX or last_total > SIX_BYTES_MAX then
      -- After years on one base, or with an immense total, the log is rewritten from the first
      -- entry that still counts.
      from = dead < to and dead or to
    end
    -- The log keeps its coarsest rounding if entries that still count stay, or if the last entry
    -- has an instant of the stored log.
    local inherits = (from > dead and from or dead) < to
      or not moved_to and last <= entry(count - 1)
    local its_slot = inherits and slot > rule_slot and slot or rule_slot
    if from == 0 and its_slot == slot and (to > 0 or last == base) and not rewrites then
      local bytes = writer.entry(last, last_total, base, 0)
      if count - to > 1 then bytes = bytes:rep(count - to) end
      return bytes, expires_in, slack, front + 12 * to
    end
    return writer.rewritten(from, to, its_slot, last, last_total), expires_in, slack
  end

  return {
    read = limit_and_window, term = 'SLOTS', standing = standing, lacks = lacks,
    in_use = in_use, take = take, give_back = give_back, after = after, next = next,
  }
end

local algorithms = {}

-- Returns the algorithm of this name, or nil if there is none. Creates it at its first use.
local function algorithm_of(name)
  local algorithm = algorithms[name]
  if algorithm then return algorithm end
  if name == 'GCRA' then
    algorithm = gcra()
  elseif name == 'FIXED' then
    algorithm = fixed()
  elseif name == 'TOKENBUCKET' or name == 'LEAKYBUCKET' then
    algorithm = bucket(name == 'LEAKYBUCKET')
  elseif name == 'SLIDING' then
    algorithm = sliding()
  elseif name == 'SLIDINGLOG' then
    algorithm = sliding_log()
  elseif name == 'BACKOFF' then
    algorithm = backoff()
  end
  algorithms[name] = algorithm
  return algorithm
end

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

-- Several rules --------------------------------------------------------------------------------

-- Returns the function that decides a call with several rules. The call takes from all keys or from
-- none.
local function several()
  local RULES_MAX = 16
  -- A number of words above that of any valid rule.
  local RULE_WORDS_MAX = 16
  local RULE_LEN_MAX, RULES_READ_MAX = 120, 500
  -- Caches the rules read from arguments, as limits_read does for limits.
  local rules_read, rules_read_count = {}, 0

  -- Reads a rule from one argument, in which spaces separate the words. Returns nil and the failure
  -- if the rule is invalid. A rule with too many words is read only up to its first superfluous
  -- word, which is enough to make it invalid.
  local function read_rule(text)
    local words, from = {}, 1
    for count = 1, RULE_WORDS_MAX do
      local _, to, word = find(text, '^ *([^ ]*)', from)
      if word == '' then break end
      words[count], from = word, to + 1
    end
    local name = name_of(words[1] or '')
    if name == 'LEASE' then
      local id, limit, ttl, left = lease().read(words, 2, 'LEASE')
      if not id then return nil, limit == 'arity' and name or limit end
      return { id = id, cost = 1, left = left, limit, ttl }
    end
    local self = algorithm_of(name)
    if not self then return nil, unnamed(name) end
    local cost, rarer, a, b, c, d = self.read(words, 2, self.term)
    if not cost then return nil, rarer == 'arity' and name or rarer end
    if rarer and rarer.partial then return nil, 'partial_not_here' end
    local rule = { self = self, cost = cost, a, b, c, d }
    if rarer then rule.left = left_units(rarer, a) end
    if #text <= RULE_LEN_MAX then
      rules_read_count = rules_read_count + 1
      if rules_read_count > RULES_READ_MAX then rules_read, rules_read_count = {}, 0 end
      rules_read[text] = rule
    end
    return rule
  end

  -- The rules of a call, and for each rule its row of the reply and the change to its key. Index n
  -- of each table belongs to rule n. Each call fills the tables before it reads them. They are kept
  -- from call to call, so that no call creates new ones.
  local rules, rows = {}, {}
  local changes, states, lifetimes, slacks, offsets = {}, {}, {}, {}, {}

  -- Reads the rules of a call. Returns how many there are; or nil, the failure, and the number of
  -- the rule that failed.
  local function read(keys, args, at)
    local count, keys_count = #args - at + 1, #keys
    if keys_count + count > 2 * RULES_MAX + 1 then return nil, 'too_many_rules' end
    for place = 1, keys_count < count and keys_count or count do
      local text = args[at + place - 1]
      local rule, failure = rules_read[text]
      if not rule then
        rule, failure = read_rule(text)
        if not rule then return nil, failure, place end
      end
      rules[place] = rule
    end
    if count ~= keys_count or count < 1 then return nil, 'arity' end
    for place = 2, count do
      local key = keys[place]
      for earlier = 1, place - 1 do
        if key == keys[earlier] then return nil, 'repeated_key', place end
      end
    end
    return count
  end

  -- Decides under one rule. Returns the rule's row of the reply, then the change to its key: for a
  -- lease, the grant; for any other rule, true if the key was missing, then the results of next. In
  -- an error, returns nil and the failure.
  local function decide_one(key, rule, now, holds_back)
    if rule.id then
      local verdict, remaining, wait, reset, grant =
        lease().decide(key, rule.id, rule[1], rule[2], rule.left, now, holds_back)
      if not verdict then return nil, remaining end
      return five(verdict, rule[1], remaining, wait, reset), grant
    end
    local bytes = attempt('GET', key)
    if bytes and #bytes < 4 then return nil, unfit(bytes) end
    local self, cost = rule.self, rule.cost
    local needed = cost + (rule.left or 0)
    local limit, repaired = self.standing(bytes, now, needed, rule[1], rule[2], rule[3], rule[4])
    if not limit then
      local reply, ban, expires_in = denied(bytes, now, rule[1], needed, cost > 0)
      if reply == nil then return nil, repaired or 'wrong_type' end
      if reply then return reply, false, ban, expires_in, 0 end
      limit, repaired = self.standing(nil, now, needed, rule[1], rule[2], rule[3], rule[4])
    end
    local verdict, wait, writes = decide(self, limit, repaired, cost, holds_back, rule.left)
    local remaining, reset = self.after()
    local row = five(verdict, limit, remaining, wait, reset)
    if not writes then return row end
    return row, not bytes, self.next(remaining, reset)
  end

  -- Returns how many more calls of the same cost and LEAVE the rule allows; EXACT for a cost of 0.
  local function calls_left(row, rule)
    if rule.cost == 0 then return EXACT end
    local usable = row[3] - (rule.left or 0)
    return usable > 0 and floor(usable / rule.cost) or 0
  end

  -- Returns true if the reply shows row instead of other. A denied row comes before an allowed row.
  -- Of two denied rows, the one with the longer wait comes first. Of two allowed rows, the one with
  -- fewer calls of its cost left comes first, then the one with fewer units left.
  local function comes_before(row, rule, other, other_rule)
    if row[1] <= 0 then
      return other[1] > 0 or other[4] >= 0 and (row[4] < 0 or row[4] > other[4])
    elseif other[1] <= 0 then
      return false
    end
    local calls, fewest = calls_left(row, rule), calls_left(other, other_rule)
    if calls ~= fewest then return calls < fewest end
    return row[3] < other[3]
  end

  local function write(keys, count, now)
    for place = 1, count do
      local change, bytes = changes[place], states[place]
      if bytes then
        store(keys[place], now, change, bytes, lifetimes[place], slacks[place], offsets[place])
      elseif change then
        lease().hold(keys[place], now, change)
      end
    end
  end

  return function(verb, keys, args, at)
    local count, failure, number = read(keys, args, at)
    if not count then return failed(failure, verb, number) end
    local now = now_us()
    local first, wait_ms = 1, 0
    for place = 1, count do
      local rule = rules[place]
      local row
      row, changes[place], states[place], lifetimes[place], slacks[place], offsets[place] =
        decide_one(keys[place], rule, now, false)
      if not row then return failed(changes[place], verb, place) end
      rows[place] = row
      if row[4] > wait_ms then wait_ms = row[4] end
      if place > 1 and comes_before(row, rule, rows[first], rules[first]) then
        first = place
      end
    end
    local head = rows[first]
    if head[1] <= 0 then
      wait_ms = head[4]
      for place = 1, count do
        if rows[place][1] > 0 then
          -- Another rule denies the call. Decide this rule again, without taking anything.
          local row
          row, changes[place], states[place], lifetimes[place], slacks[place], offsets[place] =
            decide_one(keys[place], rules[place], now, true)
          if not row then return failed(changes[place], verb, place) end
          row[4] = 0
          rows[place] = row
        end
      end
    end
    if verb == 'ALL' then write(keys, count, now) end
    return { head[1], head[2], head[3], wait_ms, head[5], first, spread(rows, 1, count) }
  end
end

local run_several

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
