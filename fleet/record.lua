-- The beginning of the scripts claim.lua and put.lua, and of probes. The record of the account is a hash:
--
--   gen, key, exp    generation, value and expiry of the stored key
--   claim, claimer   generation of the last fetch, and the replica that claimed it
--   state, until     state of the last fetch, and when it ends
--   pause            interval after the last fetch that did not help; 0 if that is over
--   since            time of the last write
--
-- All times are milliseconds on the clock of the store.
local generation, claimer = tonumber(ARGV[1]), ARGV[2]
local minInterval = math.max(tonumber(ARGV[3]), 1)

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local fields = redis.call('HMGET', KEYS[1],
	'gen', 'key', 'exp', 'claim', 'claimer', 'state', 'until', 'pause', 'since')
local gen, key, exp = tonumber(fields[1] or 0), fields[2], tonumber(fields[3] or 0)
local claim, lastClaimer = tonumber(fields[4] or 0), fields[5] or ''
local lastState, stateEnd = fields[6], tonumber(fields[7] or 0)
local pause, since = tonumber(fields[8] or 0), tonumber(fields[9] or now)

-- Redis accepts all writes of a script, even if its memory is full, if the first one needs no
-- memory, as PEXPIRE does. The second PEXPIRE is for a hash that HSET creates.
local function write(...)
	redis.call('PEXPIRE', KEYS[1], 2592000000)
	redis.call('HSET', KEYS[1], 'since', now, ...)
	redis.call('PEXPIRE', KEYS[1], 2592000000)
end

-- Protects the service from fetch after fetch. The limit is lower after rejected keys: if another
-- program fetches keys for the account, it makes new keys be rejected, and with longer intervals
-- the fleet would hardly ever have a valid key.
local function longerPause(newState)
	local limit = 10
	if newState == 'rejected' then limit = 4 end
	return math.min(math.max(2 * pause, minInterval), limit * minInterval)
end

-- The clock of the store was set back: otherwise, a key would seem valid for longer, and a claim
-- would keep replicas from a fetch for longer.
if since > now then
	exp, stateEnd = exp - (since - now), stateEnd - (since - now)
	write('exp', exp, 'until', stateEnd)
end

local state = lastState
if stateEnd <= now then state = '' end
