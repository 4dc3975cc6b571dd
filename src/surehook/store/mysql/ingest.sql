-- Ingest: INSERT events, and nothing else.
-- Only on PostgreSQL: insert_keyed_events

-- name: insert_events :none
-- One INSERT for all requests that wait: they share its commit. Rows are numbered in order of
-- input.
INSERT INTO events (event_type, payload, tenant, external_id, bucket) VALUES :given;

-- name: created_at :one
-- The same for all rows of one INSERT.
SELECT created_at FROM events WHERE id = :id AND bucket = :bucket;

-- name: find_keys_mysql :many
-- Which of these keys are taken. Never waits: an error says that an open transaction has one
-- of them. An INSERT that waits for a key instead would hold up everyone whose row belongs into the
-- gap before it, and before the first key of a tenant that is every event without a key.
-- The time is not in the index: one that answers the whole question is walked from end to end while
-- the table is small, and then every open transaction would stand in the way.
SELECT tenant, external_id, created_at FROM events FORCE INDEX (uniq_event_external_id)
WHERE (tenant, external_id, bucket) IN (:given)
FOR SHARE NOWAIT;

-- name: find_keys_mariadb :many
SELECT tenant, external_id, created_at FROM events FORCE INDEX (uniq_event_external_id)
WHERE (tenant, external_id, bucket) IN (:given)
LOCK IN SHARE MODE NOWAIT;

-- name: find_keyed_events :many
-- What is stored under these keys, to tell a repetition from a conflict.
SELECT tenant, external_id, id, created_at, event_type, payload FROM events
WHERE (tenant, external_id, bucket) IN (:given);
