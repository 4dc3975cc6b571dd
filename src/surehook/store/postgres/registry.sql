-- Registry: INSERT, UPDATE and DELETE processes; INSERT and UPDATE system_figures.

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

-- name: begin_figures :many
-- One process per interval gets the row: another that asks meanwhile waits for its lock and then
-- finds it taken. One that began and did not finish is given up after :lost seconds; a time in the
-- future, which a clock that was set back leaves behind, holds up no process.
UPDATE system_figures SET begun_at = surehook_now()
WHERE name = 'backlog'
    AND (
        begun_at > surehook_now() + interval '1 second' * :lost::float8
        OR begun_at < surehook_now() - interval '1 second' * :lost::float8
        OR begun_at < surehook_now() - interval '1 second' * :interval::float8
            AND counted_at >= begun_at
    )
RETURNING name;

-- name: begin_first_figures :many
INSERT INTO system_figures (name, begun_at) VALUES ('backlog', surehook_now())
ON CONFLICT DO NOTHING
RETURNING name;

-- name: keep_figures :none
UPDATE system_figures SET counted_at = surehook_now(), figures = :figures WHERE name = 'backlog';
