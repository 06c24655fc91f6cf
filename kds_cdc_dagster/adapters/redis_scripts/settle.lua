-- Records of durable segments: markers committed, `committed` never lowered. Repeating changes nothing.
-- KEYS[3..5] generations of pending markers, KEYS[6] the bucket that takes the committed ones.
-- ARGV[2] packed calls: {stream name, number of markers, committed, row position, lineage, message id,
--         sequence number, worker, settled at (ms)}
-- ARGV[3], ARGV[4], ARGV[5] identities, content hashes, tags as in decide; ARGV[6] seconds that KEYS[6] lives

if state_of(ARGV[1]) ~= 'finished' then return 0 end

local calls = cmsgpack.unpack(ARGV[2])
local names, changed, fields, marks = {}, {}, {}, {}
for c = 1, #calls do
  local tag = tag_at(c)
  names[c] = calls[c][1]
  changed[calls[c][1]] = true
  for _ = 1, calls[c][2] do
    local i = #fields + 1
    fields[i] = tag .. identity_at(i)
    marks[2 * i - 1] = fields[i]
    marks[2 * i] = hash_at(i)
  end
end

local records = records_of(names)
for c = 1, #calls do
  local call, record = calls[c], records[calls[c][1]]
  record[COMMITTED] = greater(record[COMMITTED], call[3])
  record[ROW_POSITION] = greater(record[ROW_POSITION], call[4])
  if call[5] ~= '' then record[LINEAGE] = call[5] end
  if call[9] >= record[SETTLED_AT_MS] then
    record[MESSAGE_ID], record[SEQUENCE_NUMBER], record[WORKER], record[SETTLED_AT_MS] =
      call[6], call[7], call[8], call[9]
  end
end
put_records(records, changed)
put_markers(KEYS[6], marks, ARGV[6])
if #fields > 0 then
  for k = 3, 5 do
    if redis.call('EXISTS', KEYS[k]) == 1 then in_parts('HDEL', KEYS[k], fields) end
  end
end
return 1
