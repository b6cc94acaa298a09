-- Takes slots for calls. The arguments are Per, Rate, Burst, the time until the last slot of this
-- replica, and for each call how long it can wait. All times are in microseconds. The reply is an
-- empty text, and how long each call must wait for its slot. If the stored budget has other settings,
-- the reply begins with these, and nothing is taken.
--
-- Stores the time of the next free slot, the time of the last script, and the settings. After an idle
-- time, the next free slot is up to Burst - 1 intervals in the past. The settings are Per in
-- nanoseconds, Rate and Burst, each with 20 digits. They stand behind the decimal point of the second
-- time, so that it remains a number: earlier versions read two numbers, and write no settings.
local per, rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local interval = per / rate
local settings = string.format('%020.0f%020.0f%020.0f', per * 1000, rate, burst)
local lastSlot = tonumber(ARGV[4])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local waits = {''}
local value = redis.call('GET', KEYS[1]) or ''
local free, last, stored = string.match(value, '^(%S+) (%d+)%.?(%d*)$')
free, last = tonumber(free or 0), tonumber(last or now)
if (stored or '') ~= '' and stored ~= settings then
	waits[1] = stored
	for i = 5, #ARGV do waits[i - 3] = 0 end
	return waits
end

-- The clock of the store was set back: otherwise, all calls would wait for that time.
if last > now then free = free - (last - now) end

-- The slots of an idle time are lost, except for the burst.
free = math.max(free, now - (burst - 1) * interval)

-- The store may have lost its data: the slots that this replica has taken are not given again. Network
-- delays differ by up to 100 ms between scripts, so lastSlot may be too late by that.
free = math.max(free, now + lastSlot - 100000)

for i = 5, #ARGV do
	local wait, longest = math.ceil(free - now), tonumber(ARGV[i])
	waits[i - 3] = wait
	if wait <= longest then free = free + interval end -- a slot that is too late for a call stays free
end

-- Redis accepts all writes of a script, even if its memory is full, if the first one needs no memory,
-- as PEXPIRE does. The value may be deleted when a burst has become free again.
local expiry = (free - now + burst * interval) / 1000 + 1000
redis.call('PEXPIRE', KEYS[1], 1000)
redis.call('SET', KEYS[1], string.format('%.3f %.0f.%s', free, now, settings), 'PX', string.format('%.0f', expiry))
return waits
