"""Lua scripts. Redis runs each script as one step: as a whole, or not at all.

If the answer of a script was lost, the script may be run again:

- JOIN, BEAT, BEGIN, END and AGAIN change nothing the second time, and return the same answer.
- LATER, STOP, RETURN and LINK change nothing the second time, and return a different answer.
- FETCH moves further jobs the second time. The jobs of the lost answer are already in our list.
- DROP is the exception: it is not run again.

Each of these keys in Redis holds a hash:

- ``fleet``: for each run id, the description of the run if the run serves the queue; otherwise
  ``gone`` and the time since which the run is gone. Only a run that serves the queue fetches and
  begins jobs.
- ``holders``: for each job, the run that works on the job.
- ``attempts``: for each job, how often the job was begun.
- ``contexts``: for each context, the job that uses the context.

A client that may add jobs may also put a value of the wrong type under the key of a job, of a
reply, or of the stop requests. Such a value has no effect on other keys. If the key of a job holds
no hash, the job counts as over. If the key of a reply holds no list, the reply is not written.

Source: docs/HERO.md, "The data in the Redis".
"""

from __future__ import annotations

HEAD = """
local work, stop, processing, attempts, holders, contexts, fleet, lease = unpack(KEYS)
local job, reply = KEYS[9], KEYS[10]
local run, id = ARGV[1], ARGV[2]
local function is(key, kind)
  local found = redis.call('TYPE', key)['ok']
  return found == kind or found == 'none'
end
local function is_over(key)
  if not is(key, 'hash') then return true end
  local status = redis.call('HGET', key, 'status')
  status = status and string.lower(status)
  return status == 'finished' or status == 'error'
end
local function serves()
  local who = redis.call('HGET', fleet, run)
  return who and string.sub(who, 1, 4) ~= 'gone'
end
local function let_go(id, context)
  redis.call('HDEL', holders, id)
  if context and redis.call('HGET', contexts, context) == id then
    redis.call('HDEL', contexts, context)
  end
end
local function forget_stop(id)
  if is(stop, 'list') then redis.call('LREM', stop, 0, id) end
end
local function write_end(job, reply, now, ttl, status, field, value)
  if is(job, 'hash') then
    redis.call('HSET', job, 'status', status, field, value, 'updated_at', now)
  end
  if is(reply, 'list') then
    redis.call('LPUSH', reply, value)
    redis.call('EXPIRE', reply, ttl)
  end
end
"""

JOIN = """
-- ARGV: run, who we are (shared or alone, then a place), lease in ms, prefix of the keys of leases
local who, ms, leases = ARGV[2], ARGV[3], ARGV[4]
local function place(text) return string.gsub(text, '^%a+ ', '', 1) end
local all = redis.call('HGETALL', fleet)
for i = 1, #all, 2 do
  local other, text = all[i], all[i + 1]
  local shared = string.sub(who, 1, 7) == 'shared ' and string.sub(text, 1, 7) == 'shared '
  local ours = other == run or place(text) == place(who)
  if not shared and not ours and redis.call('EXISTS', leases .. other) == 1 then
    return text
  end
end
if ms ~= '0' then
  redis.call('HSET', fleet, run, who)
  redis.call('SET', lease, who, 'PX', ms)
end
return ''
"""
"""Serve this queue. Answer: "" if we can serve it; otherwise the description of a living run that
cannot share the queue with us, because that run or ours was started without ``--shared``. If the
lease is 0 ms, the script only looks, and changes nothing."""

BEAT = """
if not serves() then return 0 end
redis.call('SET', lease, ARGV[2], 'PX', ARGV[3])
return 1
"""
"""Renew our lease. Answer: 1, or 0 if another run has taken over our jobs."""

FETCH = """
-- ARGV: run, how many, what the keys of jobs begin and end with, how many stop requests are looked
-- at, then ids that are here already
if not serves() then return false end
local found, before, after, stops = {}, ARGV[3], ARGV[4], {}
if is(stop, 'list') then
  for _, id in ipairs(redis.call('LRANGE', stop, 0, ARGV[5] - 1)) do stops[id] = 1 end
end
local function add(id)
  local known, key = redis.call('HGET', attempts, id), before .. id .. after
  local damaged = not is(key, 'hash')
  local kind = damaged and redis.call('TYPE', key)['ok'] or ''
  local fields = damaged and {} or redis.call('HGETALL', key)
  found[#found + 1] = {id, known or '0', fields, kind, stops[id] or 0}
end
for i = 6, #ARGV do add(ARGV[i]) end
for _ = 1, tonumber(ARGV[2]) do
  local id = redis.call('LMOVE', work, processing, 'RIGHT', 'LEFT')
  if not id then break end
  add(id)
end
return found
"""
"""Move the next jobs of the queue, oldest first, to our own list. Answer: nil if we do not serve
the queue; otherwise one row for each job. A row has the id, the attempts, the fields, the type of
the job's key if the key holds no hash, and 1 if the job is to be stopped."""

BEGIN = """
-- ARGV: run, id, attempts known, attempts at most, context or '', now
local known, most, context, now = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
if not serves() then return 'evicted' end
local holder = redis.call('HGET', holders, id)
local count = tonumber(redis.call('HGET', attempts, id) or '0')
if holder == run and count == known + 1 then return 'begun' end
if holder or is_over(job) or redis.call('EXISTS', job) == 0 then
  redis.call('LREM', processing, -1, id)
  if holder then return 'elsewhere' end
  redis.call('HDEL', attempts, id)
  return 'over'
end
if count >= most then return 'spent' end
if context ~= '' then
  local busy = redis.call('HGET', contexts, context)
  if busy and busy ~= id and redis.call('HEXISTS', holders, busy) == 1 then return 'busy' end
  redis.call('HSET', contexts, context, id)
end
redis.call('HSET', attempts, id, count + 1)
redis.call('HSET', holders, id, run)
redis.call('HSET', job, 'status', 'started', 'updated_at', now)
return 'begun'
"""
"""Begin an attempt at a job. Answers:

- ``begun``: the attempt has begun.
- ``busy``: another job uses the context.
- ``spent``: the job has no attempt left.
- ``elsewhere`` or ``over``: there is nothing to do with this job here.
- ``evicted``: we do not serve the queue.
"""

END = """
-- ARGV: run, id, context, attempt or '0' (never started), now, ttl, status, field, value
local context, attempt, status = ARGV[3], ARGV[4], ARGV[7]
local mine = attempt == '0' and serves() or
  (redis.call('HGET', holders, id) == run and redis.call('HGET', attempts, id) == attempt)
local there = mine and redis.call('LREM', processing, -1, id) or 0
if there == 0 then
  if is(job, 'hash') and redis.call('HGET', job, 'status') == status and
      redis.call('HGET', job, ARGV[8]) == ARGV[9] then
    return 'done'
  end
  return 'not ours'
end
let_go(id, context)
redis.call('HDEL', attempts, id)
forget_stop(id)
if is(job, 'hash') and (is_over(job) or redis.call('EXISTS', job) == 0) then return 'over' end
write_end(job, reply, ARGV[5], ARGV[6], status, ARGV[8], ARGV[9])
return 'done'
"""
"""End a job: write its hash, send the reply, and remove the job from our list. If the job had ended
already, the answer is ``over``."""

AGAIN = """
-- ARGV: run, id, context, attempt, now, 1 where that attempt was never started
local context, attempt, now = ARGV[3], ARGV[4], ARGV[5]
if redis.call('HGET', holders, id) ~= run or redis.call('HGET', attempts, id) ~= attempt then
  return serves() and redis.call('LPOS', processing, id) and 'done' or 'not ours'
end
let_go(id, context)
if ARGV[6] == '1' and redis.call('HINCRBY', attempts, id, -1) == 0 then
  redis.call('HDEL', attempts, id)
end
if not is_over(job) and redis.call('EXISTS', job) == 1 then
  redis.call('HSET', job, 'status', 'dispatched', 'updated_at', now)
end
return 'done'
"""
"""Allow another attempt at a job. The job is ``dispatched`` until this attempt begins, and stays in
our list."""

DROP = """
return redis.call('LREM', processing, 1, id)
"""
"""If a job was queued twice, remove the later entry of the job from our list."""

LATER = """
if redis.call('LREM', processing, 1, id) == 0 then return 0 end
return redis.call('LPUSH', work, id)
"""
"""Move a job from our list to the back of the queue, so that the jobs for which it waits are
fetched before it."""

STOP = """
-- ARGV: run, id, now, ttl, error
if is_over(job) then
  forget_stop(id)
  return 'over'
end
if redis.call('LREM', work, 0, id) == 0 then
  return redis.call('EXISTS', job) == 1 and 'unknown' or 'missing'
end
forget_stop(id)
redis.call('HDEL', attempts, id)
if redis.call('EXISTS', job) == 1 then
  write_end(job, reply, ARGV[3], ARGV[4], 'error', 'error', ARGV[5])
end
return 'stopped'
"""
"""Stop a job that is not with us: if the job is in the queue, remove it from the queue."""

RETURN = """
-- ARGV: run, how ('dead': its lease must be over; 'known': it is known to be dead; 'leaving': it is
-- us, and what we still hold stays), now, ttl, error, four arguments: what keys of jobs begin and
-- end with, and what keys of replies begin and end with; epoch seconds
local how, now, ttl, lost = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local who = redis.call('HGET', fleet, run)
if how == 'dead' and redis.call('EXISTS', lease) == 1 then return {} end
local told = {}
local kept = {}
for _, id in ipairs(redis.call('LRANGE', processing, 0, -1)) do
  local job, reply = ARGV[6] .. id .. ARGV[7], ARGV[8] .. id .. ARGV[9]
  local held = redis.call('HGET', holders, id) == run
  if held and how == 'leaving' then
    kept[#kept + 1] = id
  else
    local count = tonumber(redis.call('HGET', attempts, id) or '0')
    local context, retries = false, '0'
    if is(job, 'hash') then
      context, retries = unpack(redis.call('HMGET', job, 'context_id', 'retries'))
    end
    if held then let_go(id, 'c:' .. (context or '')) end
    retries = tonumber(retries or '0') or 0
    if is_over(job) or redis.call('EXISTS', job) == 0 then
      redis.call('HDEL', attempts, id)
    elseif held and count > retries then
      redis.call('HDEL', attempts, id)
      forget_stop(id)
      write_end(job, reply, now, ttl, 'error', 'error', lost)
      told[#told + 1] = {id, 'lost'}
    else
      if held then redis.call('HSET', job, 'status', 'dispatched', 'updated_at', now) end
      redis.call('RPUSH', work, id)
      told[#told + 1] = {id, 'queued'}
    end
  end
end
redis.call('DEL', processing)
for _, id in ipairs(kept) do redis.call('RPUSH', processing, id) end
if #kept == 0 then redis.call('DEL', lease) end
if how == 'dead' and who then
  -- The run may come back to life. Its waiting BLMOVE does not check ``fleet``, and may move one
  -- more job into its list.
  redis.call('HSET', fleet, run, 'gone ' .. ARGV[10])
elseif #kept == 0 then
  redis.call('HDEL', fleet, run)
end
return told
"""
"""Return the jobs of a run to the queue, in their old order and before all other jobs. If the run
had begun a job that has no attempt left, this job ends with the error ``lost`` instead."""

LINK = """
-- ARGV: run, id, the field to write, the time now; after these, the fields that may name the id
if redis.call('EXISTS', job) == 0 or is_over(job) then return 0 end
for i = 3, #ARGV do
  if i ~= 4 then
    local text = redis.call('HGET', job, ARGV[i])
    local read, ids = pcall(cjson.decode, text or '')
    if read and type(ids) == 'table' then
      for _, known in ipairs(ids) do if known == id then return 0 end end
    elseif text and string.find(',' .. string.gsub(text, ' ', '') .. ',', ',' .. id .. ',', 1, true)
    then
      return 0
    end
  end
end
local text = redis.call('HGET', job, ARGV[3])
local read, ids = pcall(cjson.decode, text or '')
if not read or type(ids) ~= 'table' then
  if text and text ~= '' and text ~= 'null' then return 0 end
  ids = {}
end
ids[#ids + 1] = id
redis.call('HSET', job, ARGV[3], cjson.encode(ids), 'updated_at', ARGV[4])
return 1
"""
"""Add an id to a field of ``job``, unless this field or another given field already has the id.

This keeps the ``dependents`` of one job in step with the ``prerequisites`` of another job.
"""
