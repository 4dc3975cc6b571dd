-- Registry: INSERT, UPDATE and DELETE processes.

-- name: beat :many
-- All components of a process in one statement. No index holds what changes, so that the new
-- version of a row stays on its page. Rows that are missing are the first heartbeat's affair.
UPDATE processes p
SET heartbeat_at = surehook_now(),
    step_at = surehook_now() - interval '1 second' * given.step_age,
    trouble = given.trouble
FROM unnest(:components::varchar[], :step_ages::float8[], :troubles::varchar[])
    AS given (component, step_age, trouble)
WHERE p.process_id = :process_id AND p.component = given.component
RETURNING p.component;

-- name: enter :none
INSERT INTO processes
    (process_id, component, host, pid, version, address, since, heartbeat_at, step_at, trouble)
SELECT :process_id::varchar, given.component, :host::varchar, :pid::integer, :version::varchar,
    :address::varchar, surehook_now() - interval '1 second' * :running::float8, surehook_now(),
    surehook_now() - interval '1 second' * given.step_age, given.trouble
FROM unnest(:components::varchar[], :step_ages::float8[], :troubles::varchar[])
    AS given (component, step_age, trouble)
ON CONFLICT DO NOTHING;

-- name: leave :none
DELETE FROM processes WHERE process_id = :process_id;

-- name: forget_silent :none
-- The dead say no farewell.
DELETE FROM processes
WHERE heartbeat_at < surehook_now() - interval '1 second' * :seconds::float8;
