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

