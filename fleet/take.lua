-- Takes slots for calls. The arguments are the interval between two slots, Burst, the time until
-- the last slot of this replica, and for each call how long it can wait. All times are in
-- microseconds. The reply is how long each call must wait for its slot.
--
-- Stores the time of the next free slot, and the time of the last script. After an idle time, the
-- next free slot is up to Burst - 1 intervals in the past. The interval and Burst are those of the
-- caller: a replica with another rate moves the queue on by its own interval.
local interval, burst, lastSlot = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local value = redis.call('GET', KEYS[1]) or ''
local free, last = string.match(value, '^(%S+) (%S+)$')
free, last = tonumber(free or 0), tonumber(last or now)

-- The clock of the store was set back: otherwise, all calls would wait for that time.
if last > now then free = free - (last - now) end

-- The slots of an idle time are lost, except for the burst.
free = math.max(free, now - (burst - 1) * interval)

-- The store may have lost its data: the slots that this replica has taken are not given again.
-- Network delays differ by up to 100 ms between scripts, so lastSlot may be too late by that.
free = math.max(free, now + lastSlot - 100000)

local waits = {}
for i = 4, #ARGV do
	local wait, longest = math.ceil(free - now), tonumber(ARGV[i])
	waits[i - 3] = wait
	if wait <= longest then free = free + interval end -- a slot that is too late for a call stays free
end

-- A probe has no call, and changes no slot: its Burst may be smaller than that of others.
if #waits > 0 then value = string.format('%.3f %.0f', free, now) end

-- The value may be deleted when a burst has become free again. The expiry is never shortened: the
-- other replicas may have a larger burst or interval, so their burst becomes free later.
local burstIsFree = (free - now + burst * interval) / 1000 + 1000
local expiry = string.format('%.0f', math.max(burstIsFree, redis.call('PTTL', KEYS[1])))

-- Redis accepts all writes of a script, even if its memory is full, if the first one needs no
-- memory, as PEXPIRE does.
redis.call('PEXPIRE', KEYS[1], expiry)
redis.call('SET', KEYS[1], value, 'PX', expiry)
return waits
