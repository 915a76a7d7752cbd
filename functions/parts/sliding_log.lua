-- Sliding log: stores every call in an entry of 12 bytes, six for the microseconds since the base
-- and six for the running total. Entries are numbered from 0 here.
local function sliding_log()
  local SIX_BYTES_MAX = 281474976710655
  local now, limit, window, slots
  -- grid: the width of a slot under this rule. rule_slot: the step to which this rule rounds
  -- instants up. Both in microseconds.
  local grid, rule_slot
  -- log: the stored log. base: the instant from which it counts. slot: its coarsest rounding.
  -- count: the number of its entries. front: the number of bytes before the entries.
  local log, base, slot, count, front
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

  -- Returns now, rounded up to the slot.
  local function rounded_now()
    local into = now % rule_slot
    return into == 0 and now or now - into + rule_slot
  end

  local function is_log(bytes)
    if byte(bytes, 2) ~= 0xfd then return false end
    local at
    at, base, slot = numbers(bytes, 2)
    if not at or base > INSTANT_MAX or slot < 1 or slot > PERIOD_MAX then return false end
    log, front = bytes, at - 1
    count = (#bytes - front) / 12
    if count < 1 or count % 1 ~= 0 then return false end
    local first, first_total = entry(0)
    local newest, newest_total = entry(count - 1)
    return first == base and first_total > 0 and first_total <= newest_total
      and newest - base <= INSTANT_MAX - base
  end

  local function standing(bytes, at, _, its_limit, its_window, own_slots)
    now, limit, window, slots = at, its_limit, its_window, own_slots or SLOTS_DEFAULT
    grid = floor((window + slots - 1) / slots)
    rule_slot = limit <= slots and 1 or grid
    log, moved_to, rewrites = nil, nil, false
    dead, passed, used, kept_from, kept_to = 0, 0, 0, 0, 0
    last, last_total = now, 0
    if not bytes then return limit, false end
    if not is_log(bytes) then
      -- The bytes may be large, and the variable log would keep them in memory until the next call.
      log = nil
      return
    end
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
    if log then
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
    if not log then return end
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

  local function header(from, its_slot)
    return front_of(0x93, 0xfd, from) .. spelled(its_slot)
  end

  -- Encodes an entry relative to an instant and a total. A value that does not fit into six bytes
  -- becomes the largest that fits. Only a forged log produces such values.
  local function packed(instant, total, from, total_before)
    local offset = instant > from and instant - from or 0
    total = total > total_before and total - total_before or 0
    return pack('>I6I6', offset < SIX_BYTES_MAX and offset or SIX_BYTES_MAX,
      total < SIX_BYTES_MAX and total or SIX_BYTES_MAX)
  end

  -- Encodes the log with the entries from..to - 1 and the new last entry. Only the ends of a stored
  -- log are checked, so a forged log may be out of order between them. The log written here is
  -- always readable.
  local function rewritten(from, to, its_slot)
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
    local from_instant = instants[1]
    local parts = { header(from_instant, its_slot) }
    for index = 1, kept do
      parts[index + 1] = packed(instants[index], totals[index], from_instant, total_before)
    end
    return table.concat(parts)
  end

  local function next()
    local lapse, slack = last + window - now, floor(window / 8)
    if not log then
      return header(last, rule_slot) .. packed(last, last_total, last, 0), lapse, slack
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
      local bytes = packed(last, last_total, base, 0)
      if count - to > 1 then bytes = bytes:rep(count - to) end
      return bytes, lapse, slack, front + 12 * to
    end
    return rewritten(from, to, its_slot), lapse, slack
  end

  return {
    read = limit_and_window, term = 'SLOTS', standing = standing, lacks = lacks,
    in_use = in_use, take = take, give_back = give_back, after = after, next = next,
  }
end

