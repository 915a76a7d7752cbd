-- States ---------------------------------------------------------------------------------------

-- Encodes an unsigned number in MessagePack's shortest form, the only form that is valid here.
local function spelled(number)
  if number < 128 then return char(number) end
  if number < 256 then return char(0xcc, number) end
  if number < 65536 then return pack('>BI2', 0xcd, number) end
  if number < 4294967296 then return pack('>BI4', 0xce, number) end
  return pack('>BI8', 0xcf, number)
end

-- Encodes the start of an array: its size, its kind and an instant.
local function front_of(head, kind, instant)
  if instant >= 4294967296 then return pack('>BBBI8', head, kind, 0xcf, instant) end
  return char(head, kind) .. spelled(instant)
end

-- Encodes an array of a kind, an instant and a count.
local function pair(kind, instant, count)
  if count < 128 and instant >= 4294967296 then
    return pack('>BBBI8B', 0x93, kind, 0xcf, instant, count)
  end
  return front_of(0x93, kind, instant) .. spelled(count)
end

-- Returns the number encoded at a place, and the place after its encoding; nil if no valid number
-- is there. A number of 2^53 or more is rounded, but not below 2^53.
local function number_at(bytes, at)
  local first = byte(bytes, at)
  if not first then return end
  if first < 128 then return first, at + 1 end
  local rest = #bytes - at
  if first == 0xcf and rest >= 8 then
    local number = unpack('>I8', bytes, at + 1)
    if number >= 4294967296 then return number, at + 9 end
  elseif first == 0xce and rest >= 4 then
    local number = unpack('>I4', bytes, at + 1)
    if number >= 65536 then return number, at + 5 end
  elseif first == 0xcd and rest >= 2 then
    local number = unpack('>I2', bytes, at + 1)
    if number >= 256 then return number, at + 3 end
  elseif first == 0xcc and rest >= 1 then
    local number = byte(bytes, at + 1)
    if number >= 128 then return number, at + 2 end
  end
end

-- Decodes an array of a kind and `count` numbers, 2 to 4. Returns the place after the array, and
-- the numbers; nil for anything else.
local function numbers(bytes, count)
  if byte(bytes, 1) ~= 0x91 + count then return end
  local a, b, c, d, at
  a, at = number_at(bytes, 3)
  if a then b, at = number_at(bytes, at) end
  if b and count > 2 then c, at = number_at(bytes, at) end
  if c and count > 3 then d, at = number_at(bytes, at) end
  return at, a, b, c, d
end

-- Decodes a state of this kind with exactly two numbers, and returns them; nil for anything else.
local function pair_of(bytes, kind)
  if #bytes == 12 then
    local head, its_kind, mark, instant, count = unpack('>BBBI8B', bytes)
    if head == 0x93 and its_kind == kind and mark == 0xcf and instant >= 4294967296
      and count < 128 then
      return instant, count
    end
  end
  if byte(bytes, 2) ~= kind then return end
  local at, instant, count = numbers(bytes, 2)
  if at == #bytes + 1 then return instant, count end
end

-- Bans -----------------------------------------------------------------------------------------

-- Reads the ban in a stored value. Returns the time left, the length of the ban, and true if more
-- than its length is left, because the clock stepped back: the time left is then that length.
-- Returns false for a ban that has ended, and nil if the value is not a ban.
local function ban_in(bytes, now)
  local ends, length
  if type(bytes) == 'string' then ends, length = pair_of(bytes, 0xf3) end
  if not ends or ends > INSTANT_MAX or length < PERIOD_MIN or length > PERIOD_MAX then return end
  if ends <= now then return false end
  if ends - now > length then return length, length, true end
  return ends - now, length, false
end

