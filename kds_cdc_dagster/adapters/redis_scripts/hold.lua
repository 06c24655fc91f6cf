-- ARGV[2] stream name; ARGV[3] 'hold' or 'unhold'; ARGV[4] reason, or the hold version that was seen.
-- Reply 1: done (also if it was before); 2: something was parked since that version.

if state_of(ARGV[1]) ~= 'finished' then return 0 end

local name = ARGV[2]
local records = records_of({ name })
local record = records[name]
if ARGV[3] == 'hold' then
  if record[HOLD] == ARGV[4] then return 1 end
  record[HOLD] = ARGV[4]
  record[HOLD_VERSION] = record[HOLD_VERSION] + 1
else
  if record[HOLD_VERSION] ~= tonumber(ARGV[4]) then return 2 end
  if record[HOLD] == '' then return 1 end
  record[HOLD] = ''
  record[PARKERS] = {}
end
put_records(records, { [name] = true })
return 1
