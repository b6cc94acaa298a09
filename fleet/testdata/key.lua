-- Claims a fetch, or stores its result, in the record of an access key. The record is a hash:
--
--   gen, key, exp    generation, value and expiry of the stored key
--   claim, claimer   generation of the last fetch, and the replica that claimed it
--   state, until     state of the last fetch, and when it ends
--   pause            interval after the last fetch that did not help; set to 0 when the next
--                    fetch after one that helped begins. A fetch that took too long does not help
--                    either: the claim after it is longer by the interval
--   since            time of the last write
--
-- All times are milliseconds on the clock of the store. If that clock is set back to before since,
-- exp and until are set back by the difference.
local operation, generation, claimer, minInterval = ARGV[1], tonumber(ARGV[2]), ARGV[3], math.max(tonumber(ARGV[4]), 1)
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h = redis.call('HMGET', KEYS[1], 'gen', 'exp', 'claim', 'until', 'state', 'key', 'claimer', 'since', 'pause')
local back = math.max((h[8] or now) - now, 0)
local gen, exp, claim, stateEnd, state = tonumber(h[1] or 0), (h[2] or 0) - back, tonumber(h[3] or 0), (h[4] or 0) - back, h[5]
local lastClaimer, pause = h[7] or '', tonumber(h[9] or 0)

-- Other programs that fetch keys for the account make new keys be rejected: the fleet would hardly
-- ever have a valid key if it waited longer for the next one.
local function longerPause(outcome)
	local limit = outcome == 'rejected' and 4 or 10
	return math.min(math.max(2 * pause, minInterval), limit * minInterval)
end

-- The first PEXPIRE needs no memory. If the first write of a script needs none, Redis permits the
-- other ones even if its memory is full.
local function write(...)
	redis.call('PEXPIRE', KEYS[1], 2592000000)
	redis.call('HSET', KEYS[1], 'since', now, ...)
	redis.call('PEXPIRE', KEYS[1], 2592000000)
end

if back > 0 then write('exp', exp, 'until', stateEnd) end
if stateEnd <= now then state = '' end

-- The reply is a state, its generation, its remaining time in milliseconds, the key if the state is
-- "stored", and the claimer. KeySource.claim explains the states.
if operation == 'claim' then
	local mayFetch, rejected, lease = ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[7])
	if gen > generation and exp > now then return {'stored', gen, exp - now, h[6], lastClaimer} end
	if rejected and state == 'done' and gen == claim and gen == generation then -- within MinInterval of its arrival
		pause = longerPause('rejected')
		state, stateEnd = 'rejected', stateEnd - minInterval + pause
		write('state', state, 'until', stateEnd, 'pause', pause)
	end
	local repeated = state == 'busy' and lastClaimer == claimer -- the reply to this claim was lost
	if not mayFetch or (state ~= '' and not repeated) then return {state, claim, math.max(stateEnd - now, 0), '', lastClaimer} end
	if h[5] == 'done' and gen == claim then pause = 0 end -- the last fetch helped
	if h[5] == 'busy' and not repeated then -- it took too long
		pause = longerPause('failed')
		lease = lease + pause
	end
	if not repeated then claim = math.max(now, claim + 1, gen + 1, generation + 1) end
	write('claim', claim, 'claimer', claimer, 'until', now + lease, 'state', 'busy', 'pause', pause)
	return {'granted', claim, lease, '', claimer}
end

-- A put stores only a record that is newer than the stored key, and nothing while another replica
-- fetches. The reply is how long no replica may fetch, or 0 if nothing is stored.
local key, validity, outcome, wait = ARGV[5], ARGV[6], ARGV[7], minInterval
if gen >= generation or (state == 'busy' and claim ~= generation and lastClaimer ~= claimer) then return {0} end
if outcome == 'failed' and state == 'failed' and claim == generation then return {stateEnd - now} end -- the reply to this put was lost
if outcome == 'failed' or outcome == 'rejected' then
	pause = longerPause(outcome)
	wait = pause
else
	outcome = 'done'
end
if key == '' and outcome == 'done' and state ~= 'busy' then return {0} end -- there is no claim to release
write('claim', math.max(generation, claim), 'claimer', claimer ~= '' and claimer or lastClaimer, 'until', now + wait, 'state', outcome, 'pause', pause)
if key ~= '' then redis.call('HSET', KEYS[1], 'gen', generation, 'key', key, 'exp', now + validity) end
redis.call('PUBLISH', KEYS[1], generation)
return {wait}
