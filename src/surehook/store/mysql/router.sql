-- Router: reads events without their payload, inserts sagas, keeps its cursor and its gaps.
--
-- Ids are given out when a row is inserted and become visible when its transaction commits, so
-- below the highest id that was read some may be missing: still open, rolled back, or in another
-- bucket. Those are the gaps: looked at again until they are filled, or proved empty for good.

-- name: create_cursor :none
-- Whoever is first; the second is refused by the key, looks again and finds it there.
INSERT INTO router_cursor (bucket)
SELECT :bucket FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM router_cursor WHERE bucket = :bucket);

-- name: anything_new :one
-- What an idle router asks, without a transaction; NULL = there is no cursor yet.
SELECT EXISTS (SELECT 1 FROM events e WHERE e.bucket = c.bucket AND e.id > c.read_until_id)
    OR EXISTS (SELECT 1 FROM router_gaps g WHERE g.bucket = c.bucket) AS anything
FROM router_cursor c WHERE c.bucket = :bucket;

-- name: lock_cursor :one
-- One router at a time per bucket; the others find no row and stand by.
SELECT read_until_id FROM router_cursor WHERE bucket = :bucket
FOR UPDATE SKIP LOCKED;

-- name: cursor_exists :one
SELECT 1 FROM router_cursor WHERE bucket = :bucket;

-- name: read_gaps :many
-- The newest first: what is open now is most likely to be filled soon.
SELECT first_id, last_id,
    TIMESTAMPDIFF(MICROSECOND, noticed_at, UTC_TIMESTAMP(6)) / 1e6 AS age_seconds
FROM router_gaps WHERE bucket = :bucket
ORDER BY first_id DESC LIMIT :count;

-- name: new_events :many
SELECT id FROM events FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id > :after_id
ORDER BY id LIMIT :count;

-- name: late_events :many
-- What has appeared in gaps, in whichever bucket.
SELECT id, bucket FROM events FORCE INDEX (PRIMARY)
WHERE :ranges ORDER BY id LIMIT :count;

-- name: events_elsewhere :many
-- Ids that are no gaps because another bucket has them.
SELECT id FROM events FORCE INDEX (PRIMARY)
WHERE id > :after_id AND id < :until_id AND bucket <> :bucket
ORDER BY id;

-- name: probe_mysql :many
-- Waits for nobody: an error says that someone's open transaction has a row in here.
SELECT id FROM events FORCE INDEX (PRIMARY)
WHERE id BETWEEN :first_id AND :last_id LIMIT 1 FOR SHARE NOWAIT;

-- name: probe_mariadb :many
SELECT id FROM events FORCE INDEX (PRIMARY)
WHERE id BETWEEN :first_id AND :last_id LIMIT 1 LOCK IN SHARE MODE NOWAIT;

-- name: matches :many
-- The whole of matching stands here: one saga per event and subscription that wants it, but for
-- those that are there already.
SELECT e.id, s.id
FROM events e FORCE INDEX (PRIMARY)
STRAIGHT_JOIN subscriptions s FORCE INDEX (idx_sub_match)
    ON s.tenant = e.tenant AND s.event_type = e.event_type
    AND s.active AND s.verified AND s.eligible_from <= e.created_at
WHERE e.bucket = :bucket AND e.id IN :event_ids AND NOT EXISTS (
    SELECT 1 FROM webhook_delivery_sagas g FORCE INDEX (uniq_saga_event_subscription)
    WHERE g.event_id = e.id AND g.subscription_id = s.id AND g.requeued_from = 0
      AND g.bucket = :bucket)
ORDER BY e.id, s.id;

-- name: route :none
-- A pair that appeared meanwhile refuses the whole statement: everything is looked at again.
INSERT INTO webhook_delivery_sagas (event_id, subscription_id, bucket) VALUES :given;

-- name: add_gaps :none
INSERT INTO router_gaps (bucket, first_id, last_id, noticed_at) VALUES :given;

-- name: drop_gaps :none
DELETE FROM router_gaps WHERE bucket = :bucket AND first_id IN :first_ids;

-- name: now :one
SELECT UTC_TIMESTAMP(6);

-- name: save_cursor :none
UPDATE router_cursor SET read_until_id = :read_until_id, updated_at = UTC_TIMESTAMP(6)
WHERE bucket = :bucket;
