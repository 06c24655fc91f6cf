-- The decision, as core/decide.py has it, for many calls of one shard; each call stands alone.
-- KEYS[3..5] generations of pending markers, KEYS[6..] buckets of committed ones; KEYS[4] takes new ones.
-- ARGV[2] packed calls: {stream name, segment, claim, slot, floor, dense, gap policy, release,
--         {known absent segments}, {orders; '' for snapshot reads}, {indices declared new, from 1}}
-- ARGV[3] identities, 16 bytes each; ARGV[4] content hashes, 8 bytes each; ARGV[5] tags, 8 bytes a call
-- ARGV[6] seconds that KEYS[4] lives
-- Reply: packed {committed, row position, lineage, hold, verdicts (a letter each), {doubtful segments}} a call.
--
-- The committed markers of every message are looked up, also above `committed`: an identity does not
-- always determine its position (PostgreSQL's sequence[0] may differ in a connector's redelivery).

if state_of(ARGV[1]) ~= 'finished' then return 0 end

local NAME, SEGMENT, CLAIM, SLOT, FLOOR, DENSE, ON_GAP, RELEASE, ABSENT, ORDERS, DECLARED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local ACCEPTED, ACCEPTED_GAP, GAP, SAFE, SUSPICIOUS, STALE, IN_DOUBT, PARKED = 'a', 'A', 'g', 'd', 's', 'o', 'i', 'p'

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
  return position:sub(1, 8) .. string.format('%08x%08x', high, low) .. string.rep('0', 32)
end

local calls = cmsgpack.unpack(ARGV[2])
local names, fields = {}, {}
for c = 1, #calls do
  local tag = tag_at(c)
  names[c] = calls[c][NAME]
  for _ = 1, #calls[c][ORDERS] do
    fields[#fields + 1] = tag .. identity_at(#fields + 1)
  end
end
local records = records_of(names)
local pending = markers_in(3, 5, fields)
local committed = markers_in(6, #KEYS, fields)
local fresh, changed = {}, {} -- what the calls before this one wrote: markers by field, streams by name

-- Decide the call whose first message is number `first`. Answers its reply and its accepted markers.
local function decide(call, first)
  local record = records[call[NAME]]
  local segment, orders = call[SEGMENT], call[ORDERS]
  local absent, declared = set_of(call[ABSENT]), set_of(call[DECLARED])
  local base = greater(record[COMMITTED], call[FLOOR])
  local hold = call[RELEASE] and '' or record[HOLD]
  local accepted, siblings, doubts, parked = {}, {}, {}, 0

  local function is_gap(order)
    if not call[DENSE] or base == '' or siblings[order] then return false end
    return order ~= successor(base)
  end

  local function accept(field, hash, order, verdict)
    accepted[field] = hash
    if order ~= '' then
      base = greater(base, order)
      siblings[order] = true
    end
    return verdict
  end

  local function park()
    parked = parked + 1
    return PARKED
  end

  local function by_marker(i, field, hash, order)
    local known = accepted[field] or committed[i]
    if known then return known == hash and SAFE or SUSPICIOUS end
    local mark = fresh[field] or pending[i]
    local where = mark and mark:sub(9)
    if not mark or absent[where] then return nil end
    if where == segment then
      if mark:sub(1, 8) ~= hash then return SUSPICIOUS end
      local gap = order ~= '' and not declared[i - first + 1] and is_gap(order)
      return accept(field, hash, order, gap and ACCEPTED_GAP or ACCEPTED)
    end
    doubts[#doubts + 1] = where
    return IN_DOUBT
  end

  local function by_order(i, field, hash, order)
    if order == '' or declared[i - first + 1] then return accept(field, hash, order, ACCEPTED) end
    if order <= base and not siblings[order] then return STALE end
    if not is_gap(order) then return accept(field, hash, order, ACCEPTED) end
    if call[ON_GAP] == 'accept' then return accept(field, hash, order, ACCEPTED_GAP) end
    if call[ON_GAP] == 'quarantine' then return GAP end
    hold = 'gap after ' .. base
    return park()
  end

  local verdicts = {}
  for k = 1, #orders do
    local i, order = first + k - 1, orders[k]
    local field, hash = fields[i], hash_at(i)
    verdicts[k] = by_marker(i, field, hash, order) or (hold ~= '' and park()) or by_order(i, field, hash, order)
  end

  local reply = { record[COMMITTED], record[ROW_POSITION], record[LINEAGE], record[HOLD], table.concat(verdicts), doubts }
  if #doubts > 0 then return reply, {} end -- nothing at all is written while anything is in doubt
  if parked > 0 then
    reply[4] = record[HOLD] ~= '' and record[HOLD] or hold
    if hold ~= '' then record[HOLD] = hold end
    record[HOLD_VERSION] = record[HOLD_VERSION] + 1
    raise_parker(record, call[CLAIM], call[SLOT])
    changed[call[NAME]] = true
  end
  return reply, accepted
end

local replies, written, first = {}, {}, 1
for c = 1, #calls do
  local call = calls[c]
  local reply, accepted = decide(call, first)
  for field, hash in pairs(accepted) do
    local mark = hash .. call[SEGMENT]
    fresh[field] = mark
    written[#written + 1] = field
    written[#written + 1] = mark
  end
  replies[c] = reply
  first = first + #call[ORDERS]
end
put_markers(KEYS[4], written, ARGV[6])
put_records(records, changed)
return cmsgpack.pack(replies)
