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

