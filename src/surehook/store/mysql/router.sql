-- Router: reads events without their payload, inserts sagas, keeps its cursor and its gaps.
--
-- Ids are given out when a row is inserted and become visible when its transaction commits, so
-- below the highest id that was read some may be missing: still open, rolled back, or in another
-- bucket. Those are the gaps: looked at again until they are filled, or proved empty for good.
-- Only on PostgreSQL: begin_rescan, rescan_events, save_rescan

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
SELECT id, created_at FROM events FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id > :after_id
ORDER BY id LIMIT :count;

-- name: late_events :many
-- What has appeared in gaps, in whichever bucket.
SELECT id, bucket, created_at FROM events FORCE INDEX (PRIMARY)
WHERE :ranges ORDER BY id LIMIT :count;

-- name: events_elsewhere :many
-- Ids that are no gaps because another bucket has them.
SELECT id FROM events FORCE INDEX (PRIMARY)
WHERE id > :after_id AND id < :until_id AND bucket <> :bucket
ORDER BY id;

-- name: probe_mysql :many
-- Never waits: an error says that an open transaction has a row in here.
SELECT id FROM events FORCE INDEX (PRIMARY)
WHERE id BETWEEN :first_id AND :last_id LIMIT 1 FOR SHARE NOWAIT;

-- name: probe_mariadb :many
SELECT id FROM events FORCE INDEX (PRIMARY)
WHERE id BETWEEN :first_id AND :last_id LIMIT 1 LOCK IN SHARE MODE NOWAIT;

-- name: matches :many
-- The whole of matching stands here and in `covering`: one saga per event and subscription that was
-- eligible when the event was created, and is now, but for those that are there already. In its
-- current interval for sure, else perhaps in an earlier one. The row without an event says when an
-- interval last ended: only then need anyone look for events to hold.
SELECT e.id, s.id, s.eligible_from <= e.created_at AS sure, e.created_at, s.tenant, s.event_type,
    s.eligible_first
FROM events e FORCE INDEX (PRIMARY)
STRAIGHT_JOIN subscriptions s FORCE INDEX (idx_sub_match)
    ON s.tenant = e.tenant AND s.event_type = e.event_type AND s.active AND s.verified
    AND (s.eligible_from <= e.created_at OR s.eligible_first <= e.created_at)
LEFT JOIN webhook_delivery_sagas g FORCE INDEX (uniq_saga_event_subscription)
    ON g.event_id = e.id AND g.subscription_id = s.id AND g.requeued_from = 0
    AND g.bucket = :bucket
WHERE e.bucket = :bucket AND e.id IN :event_ids AND g.event_id IS NULL
UNION ALL
SELECT 0, 0, 0, MAX(eligible_until), '', '', NULL FROM subscription_eligibility;

-- name: changed_since :many
-- Who was eligible and is not now, or has become so again: since the oldest event of a page.
SELECT id, eligible_from, eligible_until, tenant, event_type, eligible_first
FROM subscriptions FORCE INDEX (idx_sub_eligible_until) WHERE eligible_until > :oldest
UNION ALL
SELECT id, eligible_from, eligible_until, tenant, event_type, eligible_first
FROM subscriptions FORCE INDEX (idx_sub_eligible_from)
WHERE eligible_from > :oldest AND active AND verified AND eligible_first < eligible_from;

-- name: kinds :many
SELECT id, tenant, event_type, created_at FROM events FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id IN :event_ids;

-- name: routed :many
SELECT event_id, subscription_id
FROM webhook_delivery_sagas FORCE INDEX (uniq_saga_event_subscription)
WHERE bucket = :bucket AND requeued_from = 0 AND (event_id, subscription_id) IN (:given);

-- name: noted :many
SELECT event_id, subscription_id FROM router_held
WHERE bucket = :bucket AND (subscription_id, event_id) IN (:held);

-- name: covering :many
-- Whether an earlier interval has the event: the last one that began before it. Asked with values
-- that the server knows beforehand: of a join's it would read every interval there is.
SELECT :event_id, :subscription_id FROM DUAL WHERE (
    SELECT eligible_until FROM subscription_eligibility FORCE INDEX (idx_eligibility_from)
    WHERE subscription_id = :subscription_id AND pattern = :event_type AND tenant = :tenant
      AND eligible_from BETWEEN :eligible_first AND :created_at
    ORDER BY eligible_from DESC LIMIT 1) > :created_at;

-- name: route :none
-- A pair that appeared meanwhile refuses the whole statement: everything is looked at again.
INSERT INTO webhook_delivery_sagas (event_id, subscription_id, bucket) VALUES :given;

-- name: hold :none
INSERT INTO router_held (bucket, subscription_id, event_id) VALUES :given;

-- name: unrouted_since :many
-- Events of an interval that were routed while the change that began it was not yet committed,
-- though its time was earlier.
(SELECT e.id, :subscription_id
FROM events e FORCE INDEX (idx_event_type)
LEFT JOIN webhook_delivery_sagas g FORCE INDEX (uniq_saga_event_subscription)
    ON g.event_id = e.id AND g.subscription_id = :subscription_id AND g.requeued_from = 0
    AND g.bucket = :bucket
LEFT JOIN router_held h
    ON h.bucket = :bucket AND h.subscription_id = :subscription_id AND h.event_id = e.id
WHERE e.bucket = :bucket AND e.event_type = :event_type AND e.tenant = :tenant
  AND e.created_at >= :since AND e.created_at <= UTC_TIMESTAMP(6)
  AND (:until IS NULL OR e.created_at < :until) AND g.event_id IS NULL AND h.event_id IS NULL
LIMIT :count);

-- name: settled :many
-- Of what was held: what has its saga, or is wanted no more.
SELECT h.subscription_id, h.event_id
FROM router_held h
LEFT JOIN events e ON e.id = h.event_id AND e.bucket = :bucket
LEFT JOIN subscriptions s ON s.id = h.subscription_id
LEFT JOIN webhook_delivery_sagas g FORCE INDEX (uniq_saga_event_subscription)
    ON g.event_id = h.event_id AND g.subscription_id = h.subscription_id AND g.requeued_from = 0
    AND g.bucket = :bucket
WHERE h.bucket = :bucket AND (h.subscription_id, h.event_id) IN (:held)
  AND ((s.eligible_first <= e.created_at) IS NOT TRUE OR g.event_id IS NOT NULL);

-- name: let_go :none
DELETE FROM router_held WHERE bucket = :bucket AND (subscription_id, event_id) IN (:held);

-- name: add_gaps :none
INSERT INTO router_gaps (bucket, first_id, last_id, noticed_at) VALUES :given;

-- name: drop_gaps :none
DELETE FROM router_gaps WHERE bucket = :bucket AND first_id IN :first_ids;

-- name: now :one
SELECT UTC_TIMESTAMP(6);

-- name: save_cursor :none
UPDATE router_cursor SET read_until_id = :read_until_id, updated_at = UTC_TIMESTAMP(6)
WHERE bucket = :bucket;
