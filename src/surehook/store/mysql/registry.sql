-- Registry: INSERT, UPDATE and DELETE processes; INSERT and UPDATE system_figures.

-- name: beat :none
-- All components of a process in one statement. Rows that are missing are the first heartbeat's
-- affair.
UPDATE JSON_TABLE(:given, '$[*]' COLUMNS (
    component VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[0]',
    step_age_us BIGINT PATH '$[1]',
    trouble VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[2]'
)) AS given
STRAIGHT_JOIN processes p
    ON p.process_id = :process_id AND p.component = given.component
SET p.heartbeat_at = UTC_TIMESTAMP(6),
    p.step_at = UTC_TIMESTAMP(6) - INTERVAL given.step_age_us MICROSECOND,
    p.trouble = given.trouble;

-- name: enter :none
INSERT INTO processes
    (process_id, component, host, pid, version, address, since, heartbeat_at, step_at, trouble)
SELECT :process_id, given.component, :host, :pid, :version, :address,
    UTC_TIMESTAMP(6) - INTERVAL :running_us MICROSECOND, UTC_TIMESTAMP(6),
    UTC_TIMESTAMP(6) - INTERVAL given.step_age_us MICROSECOND, given.trouble
FROM JSON_TABLE(:given, '$[*]' COLUMNS (
    component VARCHAR(32) CHARACTER SET utf8mb4 PATH '$[0]',
    step_age_us BIGINT PATH '$[1]',
    trouble VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[2]'
)) AS given;

-- name: leave :none
DELETE FROM processes WHERE process_id = :process_id;

-- name: forget_silent :none
-- The dead say no farewell.
DELETE FROM processes WHERE heartbeat_at < UTC_TIMESTAMP(6) - INTERVAL :seconds SECOND;

-- name: begin_figures :none
-- One process per interval gets the row: whoever asks at the same time waits for its lock and then
-- finds it taken. One that began and did not finish is given up after :lost seconds; a time in the
-- future, which a clock that was set back leaves behind, holds up nobody.
UPDATE system_figures SET begun_at = UTC_TIMESTAMP(6)
WHERE name = 'backlog'
    AND (
        begun_at > UTC_TIMESTAMP(6) + INTERVAL :lost SECOND
        OR begun_at < UTC_TIMESTAMP(6) - INTERVAL :lost SECOND
        OR begun_at < UTC_TIMESTAMP(6) - INTERVAL :interval SECOND AND counted_at >= begun_at
    );

-- name: begin_first_figures :none
INSERT INTO system_figures (name, begun_at) VALUES ('backlog', UTC_TIMESTAMP(6));

-- name: keep_figures :none
UPDATE system_figures SET counted_at = UTC_TIMESTAMP(6), figures = :figures WHERE name = 'backlog';
