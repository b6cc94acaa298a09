local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h = redis.call('HMGET', KEYS[1], 'gen', 'exp', 'claim', 'until', 'state', 'key', 'claimer', 'since')
local back = math.max((h[8] or now) - now, 0)
local gen, exp, claim, stateEnd, state = tonumber(h[1] or 0), (h[2] or 0) - back, tonumber(h[3] or 0), (h[4] or 0) - back, h[5]
if back > 0 then redis.call('PEXPIRE', KEYS[1], 2592000000) redis.call('HSET', KEYS[1], 'exp', exp, 'until', stateEnd, 'since', now) end
if stateEnd <= now then state = '' end
if gen > tonumber(ARGV[1]) and exp > now then return {'stored', gen, exp - now, h[6]} end
local repeated = state == 'busy' and h[7] == ARGV[4] -- the reply to this claim was lost
if ARGV[2] == '0' or (state ~= '' and not repeated) then return {state, claim, math.max(stateEnd - now, 0)} end
if not repeated then claim = math.max(now, claim + 1, gen + 1, ARGV[1] + 1) end
redis.call('PEXPIRE', KEYS[1], 2592000000)
redis.call('HSET', KEYS[1], 'claim', claim, 'claimer', ARGV[4], 'until', now + ARGV[3], 'state', 'busy', 'since', now)
redis.call('PEXPIRE', KEYS[1], 2592000000)
return {'granted', claim, tonumber(ARGV[3])}
