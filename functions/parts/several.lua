-- Several rules --------------------------------------------------------------------------------

-- Returns the function that decides a call with several rules. The call takes from all keys or from
-- none.
local function several()
  local RULES_MAX = 16
  -- A number of words above that of any valid rule.
  local RULE_WORDS_MAX = 16
  local RULE_LEN_MAX, RULES_READ_MAX = 120, 500
  -- Caches the rules read from arguments, as limits_read does for limits.
  local rules_read, rules_read_count = {}, 0

  -- Reads a rule from one argument, in which spaces separate the words. Returns nil and the failure
  -- if the rule is invalid. A rule with too many words is read only up to its first superfluous
  -- word, which is enough to make it invalid.
  local function read_rule(text)
    local words, from = {}, 1
    for count = 1, RULE_WORDS_MAX do
      local _, to, word = find(text, '^ *([^ ]*)', from)
      if word == '' then break end
      words[count], from = word, to + 1
    end
    local name = name_of(words[1] or '')
    if name == 'LEASE' then
      local id, limit, ttl, left = lease().read(words, 2, 'LEASE')
      if not id then return nil, limit == 'arity' and name or limit end
      return { id = id, cost = 1, left = left, limit, ttl }
    end
    local self = algorithm_of(name)
    if not self then return nil, unnamed(name) end
    local cost, rarer, a, b, c, d = self.read(words, 2, self.term)
    if not cost then return nil, rarer == 'arity' and name or rarer end
    if rarer and rarer.partial then return nil, 'partial_not_here' end
    local rule = { self = self, cost = cost, a, b, c, d }
    if rarer then rule.left = left_units(rarer, a) end
    if #text <= RULE_LEN_MAX then
      rules_read_count = rules_read_count + 1
      if rules_read_count > RULES_READ_MAX then rules_read, rules_read_count = {}, 0 end
      rules_read[text] = rule
    end
    return rule
  end

  -- The rules of a call, and for each rule its row of the reply and the change to its key. Index n
  -- of each table belongs to rule n. Each call fills the tables before it reads them. They are kept
  -- from call to call, so that no call creates new ones.
  local rules, rows = {}, {}
  local changes, states, lifetimes, slacks, offsets = {}, {}, {}, {}, {}

  -- Reads the rules of a call. Returns how many there are; or nil, the failure, and the number of
  -- the rule that failed.
  local function read(keys, args, at)
    local count, keys_count = #args - at + 1, #keys
    if keys_count + count > 2 * RULES_MAX + 1 then return nil, 'too_many_rules' end
    for place = 1, keys_count < count and keys_count or count do
      local text = args[at + place - 1]
      local rule, failure = rules_read[text]
      if not rule then
        rule, failure = read_rule(text)
        if not rule then return nil, failure, place end
      end
      rules[place] = rule
    end
    if count ~= keys_count or count < 1 then return nil, 'arity' end
    for place = 2, count do
      local key = keys[place]
      for earlier = 1, place - 1 do
        if key == keys[earlier] then return nil, 'repeated_key', place end
      end
    end
    return count
  end

  -- Decides under one rule. Returns the rule's row of the reply, then the change to its key: for a
  -- lease, the grant; for any other rule, true if the key was missing, then the results of next. In
  -- an error, returns nil and the failure.
  local function decide_one(key, rule, now, holds_back)
    if rule.id then
      local verdict, remaining, wait, reset, grant =
        lease().decide(key, rule.id, rule[1], rule[2], rule.left, now, holds_back)
      if not verdict then return nil, remaining end
      return five(verdict, rule[1], remaining, wait, reset), grant
    end
    local bytes = attempt('GET', key)
    if bytes and #bytes < 4 then return nil, unfit(bytes) end
    local self, cost = rule.self, rule.cost
    local needed = cost + (rule.left or 0)
    local limit, repaired = self.standing(bytes, now, needed, rule[1], rule[2], rule[3], rule[4])
    if not limit then
      local reply, ban, expires_in = denied(bytes, now, rule[1], needed, cost > 0)
      if reply == nil then return nil, repaired or 'wrong_type' end
      if reply then return reply, false, ban, expires_in, 0 end
      limit, repaired = self.standing(nil, now, needed, rule[1], rule[2], rule[3], rule[4])
    end
    local verdict, wait, writes = decide(self, limit, repaired, cost, holds_back, rule.left)
    local remaining, reset = self.after()
    local row = five(verdict, limit, remaining, wait, reset)
    if not writes then return row end
    return row, not bytes, self.next(remaining, reset)
  end

  -- Returns how many more calls of the same cost and LEAVE the rule allows; EXACT for a cost of 0.
  local function calls_left(row, rule)
    if rule.cost == 0 then return EXACT end
    local usable = row[3] - (rule.left or 0)
    return usable > 0 and floor(usable / rule.cost) or 0
  end

  -- Returns true if the reply shows row instead of other. A denied row comes before an allowed row.
  -- Of two denied rows, the one with the longer wait comes first. Of two allowed rows, the one with
  -- fewer calls of its cost left comes first, then the one with fewer units left.
  local function comes_before(row, rule, other, other_rule)
    if row[1] <= 0 then
      return other[1] > 0 or other[4] >= 0 and (row[4] < 0 or row[4] > other[4])
    elseif other[1] <= 0 then
      return false
    end
    local calls, fewest = calls_left(row, rule), calls_left(other, other_rule)
    if calls ~= fewest then return calls < fewest end
    return row[3] < other[3]
  end

  local function write(keys, count, now)
    for place = 1, count do
      local change, bytes = changes[place], states[place]
      if bytes then
        store(keys[place], now, change, bytes, lifetimes[place], slacks[place], offsets[place])
      elseif change then
        lease().hold(keys[place], now, change)
      end
    end
  end

  return function(verb, keys, args, at)
    local count, failure, number = read(keys, args, at)
    if not count then return failed(failure, verb, number) end
    local now = now_us()
    local first, wait_ms = 1, 0
    for place = 1, count do
      local rule = rules[place]
      local row
      row, changes[place], states[place], lifetimes[place], slacks[place], offsets[place] =
        decide_one(keys[place], rule, now, false)
      if not row then return failed(changes[place], verb, place) end
      rows[place] = row
      if row[4] > wait_ms then wait_ms = row[4] end
      if place > 1 and comes_before(row, rule, rows[first], rules[first]) then
        first = place
      end
    end
    local head = rows[first]
    if head[1] <= 0 then
      wait_ms = head[4]
      for place = 1, count do
        if rows[place][1] > 0 then
          -- Another rule denies the call. Decide this rule again, without taking anything.
          local row
          row, changes[place], states[place], lifetimes[place], slacks[place], offsets[place] =
            decide_one(keys[place], rules[place], now, true)
          if not row then return failed(changes[place], verb, place) end
          row[4] = 0
          rows[place] = row
        end
      end
    end
    if verb == 'ALL' then write(keys, count, now) end
    return { head[1], head[2], head[3], wait_ms, head[5], first, spread(rows, 1, count) }
  end
end

local run_several

