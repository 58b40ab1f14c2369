-- One tuple: adds to the value's number, ranks it, and drops what is beyond those that are kept. Atomic, as all scripts are.
--
-- KEYS  top (sorted set): values by their numbers, rounded to the precision of scores      sums (hash): their numbers, exact
-- ARGV  value, added, the last place that is dropped, counted from the largest
-- Answers {the number, the place from the largest, counted from 0; false if it was dropped}.
local top, sums = KEYS[1], KEYS[2]
local value, added, drops = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

-- A value begins at 0, or with its score where that was changed by others or by a version that had scores alone.
local score, kept = call('ZSCORE', top, value), call('HGET', sums, value)
if not score then
  call('HDEL', sums, value)
elseif not kept or tonumber(kept) ~= tonumber(score) then
  call('HSET', sums, value, score)
end
local sum = call('HINCRBYFLOAT', sums, value, added)
call('ZADD', top, sum, value)
for _, dropped in ipairs(call('ZRANGE', top, '0', drops)) do
  call('HDEL', sums, dropped)
  call('ZREM', top, dropped)
end
return {sum, call('ZREVRANK', top, value)}
