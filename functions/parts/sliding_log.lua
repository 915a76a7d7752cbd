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

