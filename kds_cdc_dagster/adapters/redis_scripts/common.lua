-- Shared by every script. All keys of a call carry the hash tag of one shard, so they sit in one slot.
-- KEYS[1] life:  hash {id, finished, server}: the shard's sentinel
-- KEYS[2] order: hash stream name -> packed record
-- further keys:  generations of pending markers and buckets of committed ones, newest first:
--                hash <8 bytes stream tag><16 bytes identity> -> <8 bytes content hash>[<segment>]
-- ARGV[1]: id of the life the caller works in. A reply of 0 says: not (or no longer) that life.

-- A record is packed as ten values one after the other, which unpack without making a table:
-- committed, row position, lineage, hold, hold version, message id, sequence number, worker,
-- settled at (ms), parkers: a JSON list of claim, slot, claim, slot, ... or '' if none.
local NEW_STREAM = cmsgpack.pack('', '', '', '', 0, '', '', '', 0, '')

-- Arguments of one command: Lua's unpack gives up near 8,000. Even, so that pairs stay together.
local ARGUMENTS_MAX = 4000

-- A hash with a long value is kept as a table from the start. The compact list that small hashes
-- otherwise are is searched from end to end for every field.
local AS_TABLE = string.rep('.', 65)

-- Changes when a replica is promoted or the server starts again: either may have lost acknowledged
-- writes. Where INFO is not allowed the check is off (`findings` says so).
local function server_id()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and info:match('master_replid:(%x+)') or ''
end

-- 'finished', 'begun', or nil if this is not the store's life or the server may have lost writes of it.
local function state_of(life)
  local found = redis.call('HMGET', KEYS[1], 'id', 'finished', 'server')
  if found[1] ~= life or found[3] ~= server_id() then return nil end
  return found[2] == '1' and 'finished' or 'begun'
end

local function in_parts(command, key, list)
  for first = 1, #list, ARGUMENTS_MAX do
    redis.call(command, key, unpack(list, first, math.min(first + ARGUMENTS_MAX - 1, #list)))
  end
end

local function look_up(key, fields)
  if #fields <= ARGUMENTS_MAX then return redis.call('HMGET', key, unpack(fields)) end
  local values = {}
  for first = 1, #fields, ARGUMENTS_MAX do
    local part = redis.call('HMGET', key, unpack(fields, first, math.min(first + ARGUMENTS_MAX - 1, #fields)))
    for i = 1, #part do values[first + i - 1] = part[i] end
  end
  return values
end

-- The markers of the fields in KEYS[first..last]; the newest key that has one wins, false if none.
local function markers_in(first, last, fields)
  local found = {}
  if #fields == 0 then return found end
  for k = first, last do
    if redis.call('EXISTS', KEYS[k]) == 1 then
      local values = look_up(KEYS[k], fields)
      for i = 1, #fields do found[i] = found[i] or values[i] end
    end
  end
  return found
end

local function put_markers(key, pairs_, ttl_seconds)
  if #pairs_ == 0 then return end
  redis.call('HSETNX', key, '', AS_TABLE)
  in_parts('HSET', key, pairs_)
  redis.call('EXPIRE', key, ttl_seconds)
end

-- Packed records of streams by name, read at once.
local function records_of(names)
  local records = {}
  if #names == 0 then return records end
  local packed = look_up(KEYS[2], names)
  for i = 1, #names do records[names[i]] = packed[i] or NEW_STREAM end
  return records
end

local function put_records(records)
  local pairs_ = {}
  for name, packed in pairs(records) do
    pairs_[#pairs_ + 1] = name
    pairs_[#pairs_ + 1] = packed
  end
  in_parts('HSET', KEYS[2], pairs_)
end

local function with_parker(text, claim, slot)
  local parkers = text == '' and {} or cjson.decode(text)
  for i = 1, #parkers, 2 do
    if parkers[i] == claim then
      parkers[i + 1] = math.max(parkers[i + 1], slot)
      return cjson.encode(parkers)
    end
  end
  parkers[#parkers + 1] = claim
  parkers[#parkers + 1] = slot
  return cjson.encode(parkers)
end

local function field_at(i) return ARGV[3]:sub(24 * i - 23, 24 * i) end
local function hash_at(i) return ARGV[4]:sub(8 * i - 7, 8 * i) end

-- The markers in ARGV[3] and ARGV[4] become committed, in KEYS[6] for ARGV[5] seconds.
local function commit_markers()
  local fields, marks = {}, {}
  for i = 1, #ARGV[3] / 24 do
    fields[i] = field_at(i)
    marks[2 * i - 1] = fields[i]
    marks[2 * i] = hash_at(i)
  end
  put_markers(KEYS[6], marks, ARGV[5])
  for k = 3, 5 do
    if redis.call('EXISTS', KEYS[k]) == 1 then in_parts('HDEL', KEYS[k], fields) end
  end
end

-- Positions are lower-case hex of fixed width: any collation the server runs under orders them as bytes.
local function greater(a, b) return a > b and a or b end
