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

