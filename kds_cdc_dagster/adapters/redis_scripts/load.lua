-- Rebuilt records and markers into the unfinished life; nothing is lowered, a hold on either side stays.
-- KEYS as in settle. ARGV[2] packed records: {stream name, record}; ARGV[3] identities, ARGV[4] content
-- hashes, ARGV[5] tags: one of each a marker; ARGV[6] seconds that KEYS[6] lives.

if state_of(ARGV[1]) ~= 'begun' then return 0 end

local rows = cmsgpack.unpack(ARGV[2])
local names, changed = {}, {}
for r = 1, #rows do
  names[r] = rows[r][1]
  changed[rows[r][1]] = true
end

local function merged(record, rebuilt)
  local newer, older = record, rebuilt
  if rebuilt[COMMITTED] >= record[COMMITTED] then newer, older = rebuilt, record end
  local result = { unpack(newer, 1, PARKERS) }
  result[ROW_POSITION] = greater(record[ROW_POSITION], rebuilt[ROW_POSITION])
  if newer[LINEAGE] == '' then result[LINEAGE] = older[LINEAGE] end
  result[HOLD] = record[HOLD] ~= '' and record[HOLD] or rebuilt[HOLD]
  result[HOLD_VERSION] = math.max(record[HOLD_VERSION], rebuilt[HOLD_VERSION])
  for i = 1, #older[PARKERS], 2 do raise_parker(result, older[PARKERS][i], older[PARKERS][i + 1]) end
  return result
end

local records = records_of(names)
for r = 1, #rows do records[names[r]] = merged(records[names[r]], rows[r][2]) end
put_records(records, changed)

local fields, marks = {}, {}
for i = 1, #ARGV[3] / 16 do
  fields[i] = tag_at(i) .. identity_at(i)
  marks[2 * i - 1] = fields[i]
  marks[2 * i] = hash_at(i)
end
put_markers(KEYS[6], marks, ARGV[6])
for k = 3, 5 do in_parts('HDEL', KEYS[k], fields) end
return 1
