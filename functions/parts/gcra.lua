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

