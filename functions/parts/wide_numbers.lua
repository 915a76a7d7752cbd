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

