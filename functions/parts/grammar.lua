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

