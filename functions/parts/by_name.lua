local algorithms = {}

-- Returns the algorithm of this name, or nil if there is none. Creates it at its first use.
local function algorithm_of(name)
  local algorithm = algorithms[name]
  if algorithm then return algorithm end
  if name == 'GCRA' then
    algorithm = gcra()
  elseif name == 'FIXED' then
    algorithm = fixed()
  elseif name == 'TOKENBUCKET' or name == 'LEAKYBUCKET' then
    algorithm = bucket(name == 'LEAKYBUCKET')
  elseif name == 'SLIDING' then
    algorithm = sliding()
  elseif name == 'SLIDINGLOG' then
    algorithm = sliding_log()
  elseif name == 'BACKOFF' then
    algorithm = backoff()
  end
  algorithms[name] = algorithm
  return algorithm
end

