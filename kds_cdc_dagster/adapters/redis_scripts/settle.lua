-- Records of durable segments: markers committed, `committed` never lowered. Repeating changes nothing.
-- KEYS[3..5] generations of pending markers, KEYS[6] the bucket that takes the committed ones.
-- ARGV[2] packed {calls, runs}. calls, eight values each: stream name, committed, row position, lineage,
--         message id, sequence number, worker, settled at (ms). runs: see `commit_markers`
-- ARGV[3] marks of all records; ARGV[4] seconds that KEYS[6] lives

if state_of(ARGV[1]) ~= 'finished' then return 0 end

local WIDTH = 8
local calls, runs = unpack(cmsgpack.unpack(ARGV[2]))
local names = {}
for c = 1, #calls, WIDTH do names[#names + 1] = calls[c] end
local records = records_of(names)

local function settled(record, c)
  local committed, row_position, lineage, hold, version, message, sequence, worker, at_ms, parkers =
    cmsgpack.unpack(record)
  if calls[c + 3] ~= '' then lineage = calls[c + 3] end
  if calls[c + 7] >= at_ms then -- informative: those of the latest settle
    message, sequence, worker, at_ms = calls[c + 4], calls[c + 5], calls[c + 6], calls[c + 7]
  end
  committed, row_position = greater(committed, calls[c + 1]), greater(row_position, calls[c + 2])
  return cmsgpack.pack(committed, row_position, lineage, hold, version, message, sequence, worker, at_ms, parkers)
end

for c = 1, #calls, WIDTH do records[calls[c]] = settled(records[calls[c]], c) end
put_records(records)
commit_markers(runs)
return 1
