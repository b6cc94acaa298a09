-- Takes slots for calls, and returns how long each call must wait for its slot. The arguments are
-- Per, Rate, Burst, the time until the last slot of this replica, and for each call how long it
-- can wait: if its slot is later, the call takes none. All times are in microseconds.
--
-- Stores the time of the next free slot and the time of the last script. After an idle time, the
-- next free slot is up to Burst - 1 intervals in the past.
local t = redis.call('TIME')
local now, interval, burst, lastSlot, waits = t[1] * 1000000 + t[2], ARGV[1] / ARGV[2], ARGV[3], ARGV[4], {}
local free, last = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+)$')
free = (free or 0) - math.max((last or now) - now, 0) -- the clock of the store may have been set back
-- Even if the store lost its data, the next free slot is at most 100 ms before the last slot of
-- this replica. The 100 ms allow for network delays, which differ between scripts.
free = math.max(free, now - (burst - 1) * interval, now + lastSlot - 100000)
for i = 5, #ARGV do
	waits[i - 4] = math.ceil(free - now)
	if waits[i - 4] <= tonumber(ARGV[i]) then free = free + interval end
end
redis.call('PEXPIRE', KEYS[1], 1000) -- a first write that needs no memory: then Redis permits SET even if its memory is full
redis.call('SET', KEYS[1], string.format('%.3f %.0f', free, now), 'PX', string.format('%.0f', (free - now + burst * interval) / 1000 + 1000))
return waits
