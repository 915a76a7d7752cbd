#!lua name=redis_throttle
-- redis-throttle without the module: the same verdicts, replies, errors and stored bytes.
--
--   FCALL rl_gcra 1 user:42 6 10 60 COST 2              as RL.GCRA user:42 6 10 60 COST 2
--   FCALL_RO rl_peek 1 user:42 GCRA 6 10 60             as RL.PEEK user:42 GCRA 6 10 60
--   FCALL rl_lease 1 jobs worker-7 3 30                 as RL.LEASE jobs worker-7 3 30
--   FCALL rl_all 2 {a}:u {a}:t "GCRA 6 10 60" "FIXED 9 60"
--                                    as RL.ALL {a}:u "GCRA 6 10 60" {a}:t "FIXED 9 60"
--
-- A function takes its key, then the arguments that the module's command has after the key. rl_all
-- and rl_peekall take all keys first, then one rule per key in the same order, each rule in one
-- argument. rl_version returns the version. A function for a feature that needs the module, such as
-- QUOTA, returns an error that says so.
--
-- scripts/lua-script.py joins this file from functions/parts/, and generates from it the script
-- functions/redis_throttle_script.lua, for EVALSHA. The script takes the command's name before its
-- arguments: EVALSHA sha 1 user:42 GCRA 6 10 60.
--
-- Arithmetic. Lua's numbers are exact up to 2^53, and no number that decides a verdict exceeds it:
-- times are in microseconds, and sums of times are relative to now. GCRA keeps the nanoseconds in a
-- second number. Products that do not fit are computed in limbs: see wide_numbers.
--
-- Differences from the module:
-- - A wait beyond 2^53 ms (285,000 years) is rounded to the nearest number that Lua has, and so is
--   the key's expiry. Only a debt left by a rule with a much higher rate takes that long.
-- - A key with reservations is an error.
-- - BLOCK does not replace the digits of CL.THROTTLE.
-- - SLIDINGLOG without the option SLOTS rounds to 1024 slots and ignores the module's
--   rl.sliding-log-slots.
-- - A script ends at the first command that the server refuses. So beyond maxmemory, REFUND, RENEW
--   and BLOCK fail, too. On a replica, a script fails only if its call writes.
-- - A value that another program stored is read whole before it is rejected. That takes time if the
--   value has hundreds of MB.
-- - Keyspace events are those of the commands called here. They equal the module's, except that a
--   state stored with a new expiry sends expire after set, and that a call added to a SLIDINGLOG
--   sends setrange instead of set.
--
-- The caller needs permission for all commands called here: del get pexpireat pexpiretime set
-- setrange time unlink zadd zcard zcount zrange zrangebyscore zrem zrevrange zscore; before Redis
-- 7.0 also pttl. If some of these are not permitted, a call may end in an error. A call with one
-- key has then changed the key completely or not at all. A call with several keys may have changed
-- only the first keys; the units taken from them return as if the call had been allowed.
--
-- Structure. An algorithm is a table of functions on one key at a time. Its function standing reads
-- the key's state. decide and settling apply calls to that state, as engine/src/call.rs does in the
-- module. An algorithm is created at its first use, because a script runs this file from the top at
-- every call.

local VERSION = '0.3.0'
-- The number of slots into which SLIDINGLOG divides its window if the option SLOTS is not given.
-- With a limit above the number of slots, it rounds times up to the next slot. The module's setting
-- rl.sliding-log-slots has this default.
local SLOTS_DEFAULT = 1024

local LIMIT_MAX = 1000000000000
local TOTAL_MAX = 2000000000000
local PERIOD_MIN, PERIOD_MAX = 1000, 31622400000000
local REFILL_MAX = 3155760000000000
local CLOCK_MAX = 7258118400000000
local INSTANT_MAX = 9007199254740991
local EXACT = 9007199254740992
local NEEDS_MODULE = ' needs the redis-throttle module'

-- The server's functions. A library sees them only from its first call on, not while it is loaded.
local byte, char, find, upper, pack, unpack, spread, floor, call, attempt
-- True if all commands of the server accept absolute expiry times.
local knows_expiry

local function bind()
  byte, char, find, upper = string.byte, string.char, string.find, string.upper
  pack, unpack, spread = struct.pack, struct.unpack, _G.unpack
  floor = math.floor
  call, attempt = redis.call, redis.pcall
  knows_expiry = redis.REDIS_VERSION_NUM ~= nil
end

local function now_us()
  local time = redis.call('TIME') -- the clock
  local now = time[1] * 1000000 + time[2]
  return now < CLOCK_MAX and now or CLOCK_MAX
end

