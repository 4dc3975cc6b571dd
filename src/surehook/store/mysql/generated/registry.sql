-- Written by `make generate` from store/postgres/registry.sql; do not edit.

-- name: leave :none
DELETE FROM processes
WHERE
  process_id = :process_id;

-- name: forget_silent :none
DELETE FROM processes
WHERE
  heartbeat_at < UTC_TIMESTAMP(6) - INTERVAL :seconds SECOND;

-- name: begin_figures :none
UPDATE system_figures SET begun_at = UTC_TIMESTAMP(6)
WHERE
  name = 'backlog'
  AND (
    begun_at > UTC_TIMESTAMP(6) + INTERVAL :lost SECOND
    OR begun_at < UTC_TIMESTAMP(6) - INTERVAL :lost SECOND
    OR begun_at < UTC_TIMESTAMP(6) - INTERVAL :interval SECOND
    AND counted_at >= begun_at
  );

-- name: begin_first_figures :none
INSERT INTO system_figures (
  name,
  begun_at
)
VALUES
  ('backlog', UTC_TIMESTAMP(6));

-- name: keep_figures :none
UPDATE system_figures SET counted_at = UTC_TIMESTAMP(6), figures = :figures
WHERE
  name = 'backlog';
