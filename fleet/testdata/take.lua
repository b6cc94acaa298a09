local t = redis.call('TIME')
local now, interval = t[1] * 1000000 + t[2], ARGV[1] / ARGV[2]
local free, last = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+)$')
free = (free or 0) - math.max((last or now) - now, 0) -- the clock of the store may have been set back
free = math.max(free, now - (ARGV[3] - 1) * interval, now + ARGV[5] - 100000)
local wait = math.ceil(free - now)
if wait <= tonumber(ARGV[4]) then free = free + interval end
redis.call('PEXPIRE', KEYS[1], 1000) -- a first write that needs no memory, so that a full memory is no error
redis.call('SET', KEYS[1], string.format('%.3f %.0f', free, now), 'PX', string.format('%.0f', (free - now + ARGV[3] * interval) / 1000 + 1000))
return {wait}
