-- ARGV[2] stream name; ARGV[3] 'hold' or 'unhold'; ARGV[4] reason, or the hold version that was seen.
-- Reply 1: done (also if it was before); 2: something was parked since that version.

if state_of(ARGV[1]) ~= 'finished' then return 0 end

local name = ARGV[2]
local record = { cmsgpack.unpack(records_of({ name })[name]) }
local hold, version = record[4], record[5]
if ARGV[3] == 'hold' then
  if hold == ARGV[4] then return 1 end
  record[4], record[5] = ARGV[4], version + 1
else
  if version ~= tonumber(ARGV[4]) then return 2 end
  if hold == '' then return 1 end
  record[4], record[10] = '', ''
end
put_records({ [name] = cmsgpack.pack(unpack(record, 1, 10)) })
return 1
