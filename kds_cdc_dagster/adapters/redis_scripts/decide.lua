-- The decision, as core/decide.py has it, for many calls of one shard; each call stands alone.
-- KEYS[3..5] generations of pending markers, KEYS[6..] buckets of committed ones; KEYS[4] takes new ones.
-- ARGV[2] packed {calls, heads, orders, late}; flat lists, because tables are what costs here:
--   calls:  stream name, floor, number of messages, number of its head; ...
--   heads:  {claim, slot, dense, gap policy, release, {known absent segments}}
--   orders: stream order of each message of all calls, '' for snapshot reads
--   late:   numbers of the messages that are declared new
-- ARGV[3] marks of the messages; ARGV[4] seconds that KEYS[4] lives
-- Reply: for each call its record before the call, verdicts (a letter each), the hold it set or '',
--        and doubtful segments or nil: packed one after the other.
--
-- The committed markers of every message are looked up, also above `committed`: an identity does not
-- always determine its position (PostgreSQL's sequence[0] may differ when a connector sends again).

if state_of(ARGV[1]) ~= 'finished' then return 0 end

local CLAIM, SLOT, DENSE, ON_GAP, RELEASE, ABSENT, SEGMENT = 1, 2, 3, 4, 5, 6, 7
local ACCEPTED, ACCEPTED_GAP, GAP, SAFE, SUSPICIOUS, STALE, IN_DOUBT, PARKED = 'a', 'A', 'g', 'd', 's', 'o', 'i', 'p'
local NOTHING, NONE, ZEROS = cmsgpack.pack(''), cmsgpack.pack(nil), string.rep('0', 32)

local function set_of(list)
  local set = {}
  for i = 1, #list do set[list[i]] = true end
  return set
end

-- The next position of a dense stream: 8 digits epoch, 16 digits counter, zeros. In halves, because
-- numbers here are exact to 53 bits only.
local function successor(position)
  local high, low = tonumber(position:sub(9, 16), 16), tonumber(position:sub(17, 24), 16) + 1
  if low == 4294967296 then high, low = high + 1, 0 end
  return string.format('%s%08x%08x%s', position:sub(1, 8), high, low, ZEROS)
end

local calls, heads, orders, late = unpack(cmsgpack.unpack(ARGV[2]))
late = set_of(late)
for h = 1, #heads do
  heads[h][ABSENT] = set_of(heads[h][ABSENT])
  heads[h][SEGMENT] = heads[h][CLAIM] .. '/' .. string.format('%.0f', heads[h][SLOT])
end

local names, tags, fields, first = {}, {}, fields_of(ARGV[3]), 1
for c = 1, #calls, 4 do
  names[#names + 1] = calls[c]
  tags[#tags + 1] = tag_at(first)
  first = first + calls[c + 2]
end
local records = records_of(names)
local committed = markers_in(6, #KEYS, fields)
local pending = {} -- for each generation, newest first: its lists by tag
for k = 3, 5 do
  local lists = markers_in(k, k, tags)
  pending[k] = {}
  for t = 1, #tags do pending[k][tags[t]] = lists[t] or nil end
end

local changed, written = {}, {} -- what is to be written: records by name, pending lists by tag
local head, top, base, hold -- of the call being decided: its head, base before and now, hold in force
local skipping -- fields that this call has refused for a gap, or nil
local accepted, taken, marks -- field -> number, numbers in order, field -> what is pending (nil: nothing)

-- What is pending of a stream: field -> content hash and segment; the newest generation wins.
local function marks_of(tag)
  local found = nil
  for k = 5, 3, -1 do
    if pending[k][tag] then
      found = found or {}
      local list = cmsgpack.unpack(pending[k][tag])
      for e = 1, #list, 2 do
        for m, field in ipairs(fields_of(list[e + 1])) do
          found[field] = list[e + 1]:sub(32 * m - 7, 32 * m) .. list[e]
        end
      end
    end
  end
  return found
end

-- Another row of the commit that this very call took in last.
local function is_sibling(order)
  return not head[DENSE] and order == base and base > top
end

local function is_gap(order)
  if not head[DENSE] or base == '' then return false end
  return order > base and order ~= successor(base)
end

local function accept(i, order, verdict)
  accepted[fields[i]] = i
  taken[#taken + 1] = i
  if order ~= '' then base = greater(base, order) end
  return verdict
end

local function by_marker(i, order)
  local field = fields[i]
  local known = accepted[field] and hash_at(accepted[field]) or committed[i]
  if known then return known == hash_at(i) and SAFE or SUSPICIOUS end
  local mark = marks and marks[field]
  if not mark then return nil end
  local segment = mark:sub(9)
  if head[ABSENT][segment] then return nil end
  if segment ~= head[SEGMENT] then return IN_DOUBT, segment end
  if mark:sub(1, 8) ~= hash_at(i) then return SUSPICIOUS end
  return accept(i, order, order ~= '' and not late[i] and is_gap(order) and ACCEPTED_GAP or ACCEPTED)
end

local function by_order(i, order)
  if hold ~= '' then return PARKED end
  if skipping and skipping[fields[i]] then return GAP end
  if order == '' or late[i] then return accept(i, order, ACCEPTED) end
  if order <= base and not is_sibling(order) then return STALE end
  if not is_gap(order) then return accept(i, order, ACCEPTED) end
  if head[ON_GAP] == 'accept' then return accept(i, order, ACCEPTED_GAP) end
  if head[ON_GAP] == 'quarantine' then
    skipping = skipping or {}
    skipping[fields[i]] = true
    return GAP
  end
  hold = 'gap after ' .. base
  return PARKED
end

local function park(name)
  local record = { cmsgpack.unpack(records[name]) }
  record[4], record[5] = hold, record[5] + 1
  record[10] = with_parker(record[10], head[CLAIM], head[SLOT])
  records[name] = cmsgpack.pack(unpack(record, 1, 10))
  changed[name] = records[name]
end

-- The accepted of a call, whose `count` messages are numbered up to `last`, are pending from now on.
local function make_pending(tag, count, last)
  local marks = marks_at(last - count + 1, last)
  if #taken < count then
    for t = 1, #taken do taken[t] = marks_at(taken[t], taken[t]) end
    marks = table.concat(taken)
  end
  local list = pending[4][tag] and without(pending[4][tag], accepted) or {}
  list[#list + 1], list[#list + 2] = head[SEGMENT], marks
  written[tag] = cmsgpack.pack(list)
  pending[4][tag] = written[tag]
end

local packed_once = setmetatable({}, {
  __index = function(memo, text)
    memo[text] = cmsgpack.pack(text)
    return memo[text]
  end,
})

local replies, verdicts, i = {}, {}, 0
for call = 1, #calls, 4 do
  local name, floor, count = calls[call], calls[call + 1], calls[call + 2]
  local record, tag, doubts, parked = records[name], tag_at(i + 1), nil, false
  head = heads[calls[call + 3]]
  local committed_order, _, _, held = cmsgpack.unpack(record)
  top = greater(committed_order, floor)
  base, hold, accepted, taken, marks = top, head[RELEASE] and '' or held, {}, {}, marks_of(tag)
  skipping = nil
  local is_plain = not marks and hold == '' and not head[DENSE]
  for k = 1, count do
    i = i + 1
    local order, verdict, segment = orders[i], ACCEPTED, nil
    if is_plain and order > base and not committed[i] and not accepted[fields[i]] then -- as nearly all are
      accepted[fields[i]], taken[#taken + 1], base = i, i, order
    else
      verdict, segment = by_marker(i, order)
      verdict = verdict or by_order(i, order)
      if segment then
        doubts = doubts or {}
        doubts[#doubts + 1] = segment
      end
      parked = parked or verdict == PARKED
    end
    verdicts[k] = verdict
  end
  if not doubts then -- while anything is in doubt nothing at all is written
    if parked then park(name) end
    if #taken > 0 then make_pending(tag, count, i) end
  end
  replies[#replies + 1] = record
  replies[#replies + 1] = packed_once[table.concat(verdicts, '', 1, count)]
  replies[#replies + 1] = parked and not doubts and cmsgpack.pack(hold) or NOTHING
  replies[#replies + 1] = doubts and cmsgpack.pack(doubts) or NONE
end
put_all(KEYS[4], written, ARGV[4])
put_records(changed)
return table.concat(replies)
