-- One tuple of a task: adds it to its windows, moves the watermark, closes windows. Atomic, as all scripts are.
--
-- KEYS  meta (hash): watermark, begin, tuples        sources (hash): source -> "largest time, last arrival"
--       open (hash): "start:value" -> number         ends (sorted set): "start:value" by end
--       sessions (hash): value -> "start end ..."     ids (sorted set): ids of tuples by arrival
--       results (hash): id -> what that tuple closed
-- ARGV  kind, id, value, added, time, source, size, slide, lateness, idle, sources, remember, keep
-- Answers {what became of the tuple, {{start, end, value, number}, ...}}.
local meta, sources, open, ends, sessions, ids, results = unpack(KEYS)
local kind, id, value, added, source = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local time, size, slide = tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8])
local lateness, idle, expected = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local remember, keep = tonumber(ARGV[12]), ARGV[13]
local call = redis.call

local function text(number) return string.format('%.0f', number) end
-- Adds as HINCRBYFLOAT does: exactly, where numbers here would be rounded. What older versions have kept are such numbers.
local function plus(one, other)
  if type(one) == 'number' then one = string.format('%.17g', one) end
  call('HSET', meta, 'sum', one)
  return call('HINCRBYFLOAT', meta, 'sum', other)
end

-- It came before: what became of it is told again, and changes nothing.
if call('ZSCORE', ids, id) then
  local kept = call('HGET', results, id)
  return kept and cmsgpack.unpack(kept) or {'counted', {}}
end

local watermark = tonumber(call('HGET', meta, 'watermark') or '-1')

local function add(start, stop, number)
  local window = text(start) .. ':' .. value
  call('HINCRBYFLOAT', open, window, number)
  call('ZADD', ends, text(stop), window)
end

local function by_time()
  local start, counted = time - time % slide, false
  while start >= 0 and start > time - size do
    if start + size > watermark then
      add(start, start + size, added)
      counted = true
    end
    start = start - slide
  end
  return counted
end

-- Sessions that the tuple touches become one.
local function by_session()
  local from, to, rest, merged = time, time + size, {}, {}
  for start, stop in string.gmatch(call('HGET', sessions, value) or '', '(%d+) (%d+)') do
    start, stop = tonumber(start), tonumber(stop)
    if start < time + size and time < stop then
      table.insert(merged, start)
      from, to = math.min(from, start), math.max(to, stop)
    else
      table.insert(rest, text(start) .. ' ' .. text(stop))
    end
  end
  if to <= watermark then return false end
  for _, start in ipairs(merged) do
    if start ~= from then
      local window = text(start) .. ':' .. value
      add(from, to, call('HGET', open, window))
      call('HDEL', open, window)
      call('ZREM', ends, window)
    end
  end
  add(from, to, added)
  table.insert(rest, text(from) .. ' ' .. text(to))
  call('HSET', sessions, value, table.concat(rest, ' '))
  return true
end

-- The last `size` tuples of the value, after each `slide` of them: sums of `slide` tuples are kept.
local function by_count(closed)
  local kept = call('HGET', open, value)
  local panes = kept and cmsgpack.unpack(kept) or {0, '0'}
  panes[1], panes[2] = panes[1] + 1, plus(panes[2], added)
  if panes[1] % slide == 0 then
    table.insert(panes, panes[2])
    panes[2] = '0'
    if #panes - 2 > size / slide then table.remove(panes, 3) end
    if #panes - 2 == size / slide then
      local sum = '0'
      for place = 3, #panes do
        if type(panes[place]) == 'number' then panes[place] = plus(panes[place], '0') end
        sum = plus(sum, panes[place])
      end
      table.insert(closed, {text(panes[1] - size), text(panes[1]), value, sum})
    end
  end
  call('HSET', open, value, cmsgpack.pack(panes))
end

-- The least of the sources' largest times, without those that have rested for long.
local function move_watermark()
  local clock = call('TIME')
  local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
  call('HSETNX', meta, 'begin', text(now))
  local largest = string.match(call('HGET', sources, source) or '', '^%d+') or '0'
  call('HSET', sources, source, text(math.max(time, tonumber(largest))) .. ' ' .. text(now))
  local least, seen = time, 0
  for place, known in ipairs(call('HGETALL', sources)) do
    if place % 2 == 0 then
      local latest, arrival = string.match(known, '(%d+) (%d+)')
      seen = seen + 1
      if seen == 1 then least = math.huge end
      if now - tonumber(arrival) <= idle then least = math.min(least, tonumber(latest)) end
    end
  end
  local waits = seen < expected and now - tonumber(call('HGET', meta, 'begin')) <= idle
  if not waits and least - lateness > watermark then
    watermark = least - lateness
    call('HSET', meta, 'watermark', text(watermark))
  end
end

local function forget_session(start)
  local rest = {}
  for from, to in string.gmatch(call('HGET', sessions, value) or '', '(%d+) (%d+)') do
    if from ~= start then table.insert(rest, from .. ' ' .. to) end
  end
  if #rest > 0 then
    call('HSET', sessions, value, table.concat(rest, ' '))
  else
    call('HDEL', sessions, value)
  end
end

local function close(closed)
  if watermark < 0 then return end
  local due = call('ZRANGEBYSCORE', ends, '-inf', text(watermark), 'WITHSCORES', 'LIMIT', 0, 1000)
  for place = 1, #due, 2 do
    local window, stop = due[place], due[place + 1]
    local start, of = string.match(window, '^(%d+):(.*)$')
    table.insert(closed, {start, text(tonumber(stop)), of, call('HGET', open, window)})
    call('HDEL', open, window)
    call('ZREM', ends, window)
    if kind == 'session' then
      value = of
      forget_session(start)
    end
  end
end

local closed, counted = {}, true
if kind == 'count' then
  by_count(closed)
else
  if kind == 'session' then counted = by_session() else counted = by_time() end
  move_watermark()
  close(closed)
end
local answer = {counted and 'counted' or 'late', closed}
-- A late tuple is remembered if it closed something, which must not be lost.
if counted or #closed > 0 then
  local tuples = call('HINCRBY', meta, 'tuples', 1)
  call('ZADD', ids, tuples, id)
  if #closed > 0 then call('HSET', results, id, cmsgpack.pack(answer)) end
  if call('ZCARD', ids) > remember then call('HDEL', results, call('ZPOPMIN', ids)[1]) end
  if tuples % 100 == 1 then
    for _, key in ipairs(KEYS) do call('PEXPIRE', key, keep) end
  end
end
return answer
