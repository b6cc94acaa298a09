-- Replies whether the store has the Redis key. A limiter writes whenever it takes a slot: for its
-- key, the script also writes, and fails if the store accepts no writes. It writes only the expiry,
-- which needs no memory, and never shortens it.
if ARGV[1] == 'rate' then
	redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), 1000))
end
return {redis.call('EXISTS', KEYS[1])}
