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

