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
