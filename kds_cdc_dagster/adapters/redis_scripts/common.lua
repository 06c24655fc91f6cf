-- Shared by every script. All keys of a call carry the hash tag of one shard, so they sit in one slot.
-- KEYS[1] life:  hash {id, finished, server}: the shard's sentinel
-- KEYS[2] order: hash stream name -> packed record
-- further keys:  generations of pending markers and buckets of committed ones, newest first
--   committed:   hash field -> <8 bytes content hash>; a field is <8 bytes stream tag><16 bytes identity>
--   pending:     hash stream tag -> packed list: segment, its marks (field and content hash) end to end; ...
--                One value a stream, because what a round makes pending its settle takes away again, all at once.
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

-- The values of `fields` in KEYS[first..last], each field once; the newest key that has one wins, false if none.
local function markers_in(first, last, fields)
  local found = {}
  if #fields == 0 then return found end
  for k = first, last do
    if redis.call('EXISTS', KEYS[k]) == 1 then
      local values = look_up(KEYS[k], fields)
      if next(found) == nil then
        found = values
      else
        for i = 1, #fields do found[i] = found[i] or values[i] end
      end
    end
  end
  return found
end

local function put_all(key, values, ttl_seconds)
  local pairs_ = {}
  for field, value in pairs(values) do
    pairs_[#pairs_ + 1] = field
    pairs_[#pairs_ + 1] = value
  end
  if #pairs_ == 0 then return end
  in_parts('HSET', key, pairs_)
  if ttl_seconds then redis.call('EXPIRE', key, ttl_seconds) end
end

-- Packed records of streams by name, read at once.
local function records_of(names)
  local records = {}
  if #names == 0 then return records end
  local packed = look_up(KEYS[2], names)
  for i = 1, #names do records[names[i]] = packed[i] or NEW_STREAM end
  return records
end

local function put_records(records) put_all(KEYS[2], records) end

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

-- ARGV[3]: the marks of a call end to end: field and content hash of each message or record.
local function hash_at(i) return ARGV[3]:sub(32 * i - 7, 32 * i) end
local function tag_at(i) return ARGV[3]:sub(32 * i - 31, 32 * i - 24) end
local function marks_at(first, last) return ARGV[3]:sub(32 * first - 31, 32 * last) end

-- Calls `act` with the values that `format` takes out of each of `marks`, of many at once: a list and its length.
local function unpacked(marks, format, values_each, act)
  local count, part = #marks / 32, ARGUMENTS_MAX / values_each
  for first = 1, count, part do
    local taken = math.min(part, count - first + 1)
    act({ struct.unpack(format:rep(taken), marks, 32 * first - 31) }, taken * values_each)
  end
end

local function fields_of(marks)
  local fields = {}
  unpacked(marks, 'c24xxxxxxxx', 1, function(values, count)
    values[count + 1] = nil -- where in `marks` it ended
    if #fields == 0 then
      fields = values
    else
      for i = 1, count do fields[#fields + 1] = values[i] end
    end
  end)
  return fields
end

-- A packed list of pending marks without those of the fields in `gone`.
local function without(packed, gone)
  local list, kept = cmsgpack.unpack(packed), {}
  for e = 1, #list, 2 do
    local marks = {}
    for m, field in ipairs(fields_of(list[e + 1])) do
      if not gone[field] then marks[#marks + 1] = list[e + 1]:sub(32 * m - 31, 32 * m) end
    end
    if #marks > 0 then
      kept[#kept + 1] = list[e]
      kept[#kept + 1] = table.concat(marks)
    end
  end
  return kept
end

-- The pending list without the fields of `marks`; nil if nothing is left, as nearly always.
local function settled_list(packed, marks)
  local list, gone = cmsgpack.unpack(packed), {}
  if #list == 2 and list[2] == marks then return nil end
  for _, field in ipairs(fields_of(marks)) do gone[field] = true end
  list = without(packed, gone)
  return #list > 0 and cmsgpack.pack(list) or nil
end

local function drop_pending(key, runs, tags)
  local lists, left, emptied, last = look_up(key, tags), {}, {}, 0
  for r = 1, #runs do left[tags[r]] = lists[r] or nil end
  for r = 1, #runs do
    local packed = left[tags[r]]
    if packed then left[tags[r]] = settled_list(packed, marks_at(last + 1, last + runs[r])) end
    last = last + runs[r]
  end
  for r = 1, #runs do
    if lists[r] and not left[tags[r]] then emptied[#emptied + 1] = tags[r] end
  end
  put_all(key, left) -- first: a hash that runs empty is gone, and its end with it
  in_parts('HDEL', key, emptied)
end

-- The marks in ARGV[3] become committed, in KEYS[6] for ARGV[4] seconds. `runs`: how many of one stream stand
-- together, time after time.
local function commit_markers(runs)
  if #runs == 0 then return end
  redis.call('HSETNX', KEYS[6], '', AS_TABLE)
  unpacked(ARGV[3], 'c24c8', 2, function(pairs_, count) redis.call('HSET', KEYS[6], unpack(pairs_, 1, count)) end)
  redis.call('EXPIRE', KEYS[6], ARGV[4])
  local tags, first = {}, 1
  for r = 1, #runs do
    tags[r] = tag_at(first)
    first = first + runs[r]
  end
  for k = 3, 5 do
    if redis.call('EXISTS', KEYS[k]) == 1 then drop_pending(KEYS[k], runs, tags) end
  end
end

-- Positions are lower-case hex of fixed width: any collation the server runs under orders them as bytes.
local function greater(a, b) return a > b and a or b end
