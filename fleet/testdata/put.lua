local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h = redis.call('HMGET', KEYS[1], 'gen', 'exp', 'claim', 'until', 'state', 'key', 'claimer', 'since')
local back = math.max((h[8] or now) - now, 0)
local gen, exp, claim, stateEnd, state = tonumber(h[1] or 0), (h[2] or 0) - back, tonumber(h[3] or 0), (h[4] or 0) - back, h[5]
if back > 0 then redis.call('PEXPIRE', KEYS[1], 2592000000) redis.call('HSET', KEYS[1], 'exp', exp, 'until', stateEnd, 'since', now) end
if stateEnd <= now then state = '' end
if gen >= tonumber(ARGV[1]) or (state == 'busy' and claim ~= tonumber(ARGV[1]) and h[7] ~= ARGV[6]) or (ARGV[2] .. ARGV[5] == '0' and state ~= 'busy') then return {0} end
redis.call('PEXPIRE', KEYS[1], 2592000000)
redis.call('HSET', KEYS[1], 'claim', math.max(ARGV[1], claim), 'until', now + ARGV[4], 'state', ARGV[5] == '1' and 'failed' or 'done', 'since', now)
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'gen', ARGV[1], 'key', ARGV[2], 'exp', now + ARGV[3]) end
redis.call('PUBLISH', KEYS[1], ARGV[1])
return {redis.call('PEXPIRE', KEYS[1], 2592000000)} -- 1
