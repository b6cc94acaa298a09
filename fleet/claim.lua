
-- Replies a newer key or, if there is none, claims a fetch. The reply is a state, its generation,
-- its remaining time, the key if the state is "stored", and the claimer.
local mayFetch, isRejected, lease = ARGV[4] == '1', ARGV[5] == '1', tonumber(ARGV[6])

-- The replica does not have the stored key yet. A fetch could invalidate it.
if gen > generation and exp > now then
	return {'stored', gen, exp - now, key, lastClaimer}
end

-- The stored key was rejected within minInterval of its arrival. Another fetch would probably not
-- help either: the replicas wait for longer.
local isKeyOfLastFetch = gen == claim and gen == generation
if isRejected and isKeyOfLastFetch and state == 'done' then
	pause = longerPause('rejected')
	state, stateEnd = 'rejected', stateEnd - minInterval + pause
	write('state', state, 'until', stateEnd, 'pause', pause)
end

-- The reply to this claim was lost, so the replica claims again. Without this, it would wait for
-- itself until the end of the lease.
local isRepeated = state == 'busy' and lastClaimer == claimer

-- One replica fetches at a time, and the interval after the last fetch is kept.
local mustWait = state ~= '' and not isRepeated
if mustWait or not mayFetch then
	return {state, claim, math.max(stateEnd - now, 0), '', lastClaimer}
end

local lastHelped = lastState == 'done' and gen == claim
if lastHelped then pause = 0 end -- the next failure begins with the shortest interval

if not isRepeated then
	-- The last fetch took too long, as if its replica had died. If the next ones do too, each lease
	-- is longer, as an interval after a failure would be.
	if lastState == 'busy' then
		pause = longerPause('failed')
		lease = lease + pause
	end
	claim = math.max(now, claim + 1, gen + 1, generation + 1)
end
write('claim', claim, 'claimer', claimer, 'until', now + lease, 'state', 'busy', 'pause', pause)
return {'granted', claim, lease, '', claimer}
