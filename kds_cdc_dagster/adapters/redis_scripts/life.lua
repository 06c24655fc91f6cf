-- ARGV[2] 'read', 'begin' or 'finish' of life ARGV[1].
-- read: {id or '', state}; the state is 'finished', 'begun' or 'lost'
-- begin: 1. Of lives that begin at once the one with the greater id stays, on every shard the same.
-- finish: 1, or 0 if another life has begun or the server changed since.

local id = redis.call('HGET', KEYS[1], 'id') or ''
if ARGV[2] == 'read' then return { id, state_of(id) or 'lost' } end
if ARGV[2] == 'begin' then
  if id < ARGV[1] then redis.call('HSET', KEYS[1], 'id', ARGV[1], 'finished', '0', 'server', server_id()) end
  return 1
end
if not state_of(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'finished', '1')
return 1
