-- Claims a fetch of an access key, or stores its result. The record of the account is a hash:
--
--   gen, key, exp    generation, value and expiry of the stored key
--   claim, claimer   generation of the last fetch, and the replica that claimed it
--   state, until     state of the last fetch, and when it ends
--   pause            interval after the last fetch that did not help; 0 if that is over
--   since            time of the last write
--
-- All times are milliseconds on the clock of the store.
local operation, generation, claimer = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local minInterval = math.max(tonumber(ARGV[4]), 1)

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
local function longerPause(outcome)
	local limit = 10
	if outcome == 'rejected' then limit = 4 end
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

-- The reply is a state, its generation, its remaining time, the key if the state is "stored", and
-- the claimer.
if operation == 'claim' then
	local mayFetch, isRejected, lease = ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[7])

	-- The replica does not have the stored key yet. A fetch could invalidate it.
	if gen > generation and exp > now then
		return {'stored', gen, exp - now, key, lastClaimer}
	end

	-- The stored key was rejected within minInterval of its arrival. Another fetch would probably
	-- not help either: the replicas wait for longer.
	local isKeyOfLastFetch = gen == claim and gen == generation
	if isRejected and isKeyOfLastFetch and state == 'done' then
		pause = longerPause('rejected')
		state, stateEnd = 'rejected', stateEnd - minInterval + pause
		write('state', state, 'until', stateEnd, 'pause', pause)
	end

	-- The reply to this claim was lost, so the replica claims again. Without this, it would wait
	-- for itself until the end of the lease.
	local isRepeated = state == 'busy' and lastClaimer == claimer

	-- One replica fetches at a time, and the interval after the last fetch is kept.
	local mustWait = state ~= '' and not isRepeated
	if mustWait or not mayFetch then
		return {state, claim, math.max(stateEnd - now, 0), '', lastClaimer}
	end

	local lastHelped = lastState == 'done' and gen == claim
	if lastHelped then pause = 0 end -- the next failure begins with the shortest interval

	if not isRepeated then
		-- The last fetch took too long, as if its replica had died. If the next ones do too, each
		-- lease is longer, as an interval after a failure would be.
		if lastState == 'busy' then
			pause = longerPause('failed')
			lease = lease + pause
		end
		claim = math.max(now, claim + 1, gen + 1, generation + 1)
	end
	write('claim', claim, 'claimer', claimer, 'until', now + lease, 'state', 'busy', 'pause', pause)
	return {'granted', claim, lease, '', claimer}
end

-- The operation is put. The reply is how long no replica may fetch, or 0 if nothing is stored.
local newKey, validity, outcome = ARGV[5], tonumber(ARGV[6]), ARGV[7]

-- The result is late, such as that of a suspended replica, or is stored already. The stored key may
-- have invalidated this one.
if gen >= generation then return {0} end

-- Another replica fetches, and its key may invalidate this one.
if state == 'busy' and claim ~= generation then return {0} end

-- The reply to this put was lost. One failure must not make the interval longer twice.
if outcome == 'failed' and state == 'failed' and claim == generation then return {stateEnd - now} end

local wait = minInterval
if outcome == 'failed' or outcome == 'rejected' then
	pause = longerPause(outcome)
	wait = pause
else
	outcome = 'done'
end

-- A replica that is closed releases its claim: without a claim, there is nothing to release.
local isRelease = newKey == '' and outcome == 'done'
if isRelease and state ~= 'busy' then return {0} end

if claimer == '' then claimer = lastClaimer end
write('claim', math.max(generation, claim), 'claimer', claimer, 'until', now + wait, 'state', outcome, 'pause', pause)
if newKey ~= '' then
	redis.call('HSET', KEYS[1], 'gen', generation, 'key', newKey, 'exp', now + validity)
end
redis.call('PUBLISH', KEYS[1], generation)
return {wait}
