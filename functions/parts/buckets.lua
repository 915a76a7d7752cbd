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

