-- Runs the module's command `verb`, named without RL. Its arguments after the keys begin at place
-- `at`.
local function run(verb, keys, args, at)
  local self = made[verb]
  if self and #keys == 1 then return apply(self, verb, keys, args, at) end
  if not call then bind() end
  if verb == 'ALL' or verb == 'PEEKALL' then
    several_made = several_made or several()
    return several_made(verb, keys, args, at)
  end
  self = algorithm_of(verb)
  if verb == 'VERSION' then
    return VERSION
  elseif not self and find(' QUOTA USE RESERVE COMMIT CANCEL POLICY INSPECT METRICS ',
    ' ' .. verb .. ' ', 1, true) then
    return failed('ERR ' .. verb .. NEEDS_MODULE, verb)
  elseif #keys ~= 1 then
    return failed('keys', verb)
  elseif self then
    return apply(self, verb, keys, args, at)
  elseif verb == 'BLOCK' then
    return block(keys[1], args, at)
  elseif verb == 'LEASE' or verb == 'RENEW' or verb == 'RELEASE' then
    return apply_lease(verb, keys, args, at)
  elseif verb ~= 'PEEK' and verb ~= 'CHARGE' and verb ~= 'REFUND' then
    return failed('command', verb)
  end
  -- A call with too few arguments gets the error that the server returns for a command of the
  -- module, before the grammar checks the arguments.
  if not args[at + 1] then return failed('arity', verb) end
  local name = name_of(args[at])
  self = algorithm_of(name)
  if self then return apply(self, verb, keys, args, at + 1) end
  if name == 'LEASE' and verb == 'PEEK' then return apply_lease(verb, keys, args, at + 1) end
  return failed(unnamed(name), verb)
end

