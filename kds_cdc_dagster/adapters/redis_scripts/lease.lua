-- The lease of a rebuild, on one shard: until then others leave it alone. Nothing else rests on it.
-- ARGV[2] 'read', 'begin' or 'renew' of life ARGV[1]; ARGV[3] until when, in ms.
-- read:  what is here: id, finished, until
-- begin: 1, or 0 if something else is here than was read, which is ARGV[4..6]
-- renew: 1, or 0 if another life has begun

local found = redis.call('HMGET', KEYS[1], 'id', 'finished', 'until')
for i = 1, 3 do found[i] = found[i] or '' end
if ARGV[2] == 'read' then return found end
if ARGV[2] == 'begin' and found[1] ~= ARGV[1] then -- else a retry of this very call
  for i = 1, 3 do
    if found[i] ~= ARGV[3 + i] then return 0 end
  end
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'finished', '0', 'server', server_id())
elseif found[1] ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'until', ARGV[3])
return 1
