-- The decision, as core/decide.py has it, for many calls of one shard; each call stands alone.
-- KEYS[3..5] generations of pending markers, KEYS[6..] buckets of committed ones; KEYS[4] takes new ones.
-- ARGV[2] packed {calls, heads, orders, late}; flat lists, because tables are what costs here:
--   calls:  stream name, floor, number of messages, number of its head; ...
--   heads:  {claim, slot, dense, gap policy, release, {known absent segments}}
--   orders: stream order of each message of all calls, '' for snapshot reads
--   late:   numbers of the messages that are declared new
-- ARGV[3] fields and ARGV[4] content hashes of the messages, 24 and 8 bytes each
-- ARGV[5] seconds that KEYS[4] lives
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

local names, fields = {}, {}
for i = 1, #calls / 4 do names[i] = calls[4 * i - 3] end
for i = 1, #orders do fields[i] = field_at(i) end
local records = records_of(names)
local pending = markers_in(3, 5, fields)
local committed = markers_in(6, #KEYS, fields)

local fresh, changed = {}, {} -- what earlier calls wrote: markers by field, records by name
local head, top, base, hold -- of the call being decided: its head, base before and now, hold in force
local accepted = {} -- field -> hash

-- Another row of the commit that this very call took in last.
local function is_sibling(order)
  return not head[DENSE] and order == base and base > top
end

local function is_gap(order)
  if not head[DENSE] or base == '' then return false end
  return order > base and order ~= successor(base)
end

local function accept(i, order, verdict)
  accepted[fields[i]] = hash_at(i)
  if order ~= '' then base = greater(base, order) end
  return verdict
end

local function by_marker(i, order)
  local field = fields[i]
  local known = accepted[field] or committed[i]
  if known then return known == hash_at(i) and SAFE or SUSPICIOUS end
  local mark = fresh[field] or pending[i]
  if not mark then return nil end
  local segment = mark:sub(9)
  if head[ABSENT][segment] then return nil end
  if segment ~= head[SEGMENT] then return IN_DOUBT, segment end
  if mark:sub(1, 8) ~= hash_at(i) then return SUSPICIOUS end
  return accept(i, order, order ~= '' and not late[i] and is_gap(order) and ACCEPTED_GAP or ACCEPTED)
end

local function by_order(i, order)
  if hold ~= '' then return PARKED end
  if order == '' or late[i] then return accept(i, order, ACCEPTED) end
  if order <= base and not is_sibling(order) then return STALE end
  if not is_gap(order) then return accept(i, order, ACCEPTED) end
  if head[ON_GAP] == 'accept' then return accept(i, order, ACCEPTED_GAP) end
  if head[ON_GAP] == 'quarantine' then return GAP end
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

local packed_once = setmetatable({}, {
  __index = function(memo, text)
    memo[text] = cmsgpack.pack(text)
    return memo[text]
  end,
})

local replies, written, verdicts, i = {}, {}, {}, 0
for call = 1, #calls, 4 do
  local name, floor, count = calls[call], calls[call + 1], calls[call + 2]
  local record, doubts, parked = records[name], nil, false
  head = heads[calls[call + 3]]
  local committed_order, _, _, held = cmsgpack.unpack(record)
  top = greater(committed_order, floor)
  base, hold, accepted = top, head[RELEASE] and '' or held, {}
  for k = 1, count do
    i = i + 1
    local verdict, segment = by_marker(i, orders[i])
    verdict = verdict or by_order(i, orders[i])
    if segment then
      doubts = doubts or {}
      doubts[#doubts + 1] = segment
    end
    parked = parked or verdict == PARKED
    verdicts[k] = verdict
  end
  if not doubts then -- while anything is in doubt nothing at all is written
    if parked then park(name) end
    for field, hash in pairs(accepted) do
      local mark = hash .. head[SEGMENT]
      fresh[field] = mark
      written[#written + 1] = field
      written[#written + 1] = mark
    end
  end
  replies[#replies + 1] = record
  replies[#replies + 1] = packed_once[table.concat(verdicts, '', 1, count)]
  replies[#replies + 1] = parked and not doubts and cmsgpack.pack(hold) or NOTHING
  replies[#replies + 1] = doubts and cmsgpack.pack(doubts) or NONE
end
put_markers(KEYS[4], written, ARGV[5])
put_records(changed)
return table.concat(replies)
