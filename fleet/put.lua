
-- Stores the key of a fetch or its failure, or releases its claim. The reply is how long no replica
-- may fetch, or 0 if nothing is stored.
local newKey, validity, newState = ARGV[4], tonumber(ARGV[5]), ARGV[6]

-- The result is late, such as that of a suspended replica, or is stored already. The stored key may
-- have invalidated this one.
if gen >= generation then return {0} end

-- Another replica fetches, and its key may invalidate this one.
if state == 'busy' and claim ~= generation then return {0} end

-- The reply to this put was lost. One failure must not make the interval longer twice.
if newState == 'failed' and state == 'failed' and claim == generation then return {stateEnd - now} end

local wait = minInterval
if newState ~= 'done' then
	pause = longerPause(newState)
	wait = pause
end

-- A replica that is closed releases its claim: without a claim, there is nothing to release.
local isRelease = newKey == '' and newState == 'done'
if isRelease and state ~= 'busy' then return {0} end

if claimer == '' then claimer = lastClaimer end
write('claim', math.max(generation, claim), 'claimer', claimer, 'until', now + wait, 'state', newState, 'pause', pause)
if newKey ~= '' then
	redis.call('HSET', KEYS[1], 'gen', generation, 'key', newKey, 'exp', now + validity)
end
redis.call('PUBLISH', KEYS[1], generation)
return {wait}
