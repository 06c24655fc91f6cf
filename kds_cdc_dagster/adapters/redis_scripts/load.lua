-- Rebuilt records and markers into the unfinished life; nothing is lowered, a hold on either side stays.
-- KEYS[3..5] and KEYS[6] as in settle. ARGV[2] packed {records, runs}:
-- stream name, its record's ten values; ... and the runs of `commit_markers`.
-- ARGV[3], ARGV[4] as in settle.

if state_of(ARGV[1]) ~= 'begun' then return 0 end

local WIDTH = 11
local rebuilt, runs = unpack(cmsgpack.unpack(ARGV[2]))
local names = {}
for r = 1, #rebuilt, WIDTH do names[#names + 1] = rebuilt[r] end
local records = records_of(names)

local function merged(record, loaded)
  local newer, older = record, loaded
  if loaded[1] >= record[1] then newer, older = loaded, record end
  local parkers = newer[10]
  if older[10] ~= '' then
    local list = cjson.decode(older[10])
    for p = 1, #list, 2 do parkers = with_parker(parkers, list[p], list[p + 1]) end
  end
  return cmsgpack.pack(
    newer[1], greater(record[2], loaded[2]), newer[3] ~= '' and newer[3] or older[3],
    record[4] ~= '' and record[4] or loaded[4], math.max(record[5], loaded[5]),
    newer[6], newer[7], newer[8], newer[9], parkers)
end

for r = 1, #rebuilt, WIDTH do
  local name = rebuilt[r]
  records[name] = merged({ cmsgpack.unpack(records[name]) }, { unpack(rebuilt, r + 1, r + 10) })
end
put_records(records)
commit_markers(runs)
return 1
