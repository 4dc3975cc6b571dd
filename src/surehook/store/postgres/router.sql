-- Router: reads events without their payload, inserts sagas, keeps its cursor and its notes.

-- name: create_cursor :none
-- 0 matches no server, so the first step always rescans.
INSERT INTO router_cursor (bucket, system_identifier, snapshot)
VALUES (:bucket, 0, '1:1:')
ON CONFLICT DO NOTHING;

-- name: lock_cursor :one
-- One router at a time per bucket; the others find no row and stand by.
SELECT snapshot, partial_xid, partial_id, foreign_id_max, rescan_after_id, rescan_until_id,
    system_identifier <> (SELECT system_identifier FROM pg_control_system())
        OR pg_snapshot_xmax(snapshot) > pg_snapshot_xmax(pg_current_snapshot()) AS other_server
FROM router_cursor
WHERE bucket = :bucket
FOR UPDATE SKIP LOCKED;

-- name: begin_rescan :none
-- After a dump was restored the events carry the old server's xids: what is visible now is walked
-- by id, what commits later is found by snapshot. All in one statement, so by one snapshot.
UPDATE router_cursor
SET system_identifier = (SELECT system_identifier FROM pg_control_system()),
    snapshot = pg_current_snapshot(),
    partial_xid = '0',
    partial_id = 0,
    foreign_id_max = COALESCE((
        SELECT max(id) FROM events
        WHERE bucket = :bucket AND xid >= pg_snapshot_xmax(pg_current_snapshot())), 0),
    rescan_after_id = 0,
    rescan_until_id = COALESCE((SELECT max(id) FROM events WHERE bucket = :bucket), 0),
    updated_at = surehook_now()
WHERE bucket = :bucket;

-- name: rescan_events :many
SELECT id, created_at FROM events
WHERE bucket = :bucket AND id > :after_id AND id <= :until_id
ORDER BY id LIMIT :count;

-- name: save_rescan :one
UPDATE router_cursor
SET rescan_after_id = :after_id, updated_at = surehook_now()
WHERE bucket = :bucket
RETURNING (SELECT max(eligible_until) FROM subscription_eligibility);

-- name: new_events :many
-- What the saved snapshot could not see and this one can: the transactions that were under way
-- then, and those that began later. In order of (xid, id); an event seen in part goes on where it
-- stopped. Restored events may carry xids that this server has yet to reach: not new.
SELECT new.id, new.xid, pg_current_snapshot() AS snapshot, new.created_at
FROM (
    (SELECT e.id, e.xid, e.created_at
     FROM unnest(:in_flight::xid8[]) AS given (xid)
     CROSS JOIN LATERAL (
         SELECT id, xid, created_at FROM events
         WHERE bucket = :bucket AND xid = given.xid
           AND id > CASE WHEN given.xid = :partial_xid::xid8 THEN :partial_id::bigint ELSE 0 END
         ORDER BY id LIMIT :count
     ) e
     ORDER BY e.xid, e.id LIMIT :count)
    UNION ALL
    (SELECT id, xid, created_at
     FROM events
     WHERE bucket = :bucket AND (xid, id) > (:from_xid::xid8, :from_id)
       AND xid < pg_snapshot_xmax(pg_current_snapshot()) AND (id > :foreign_id_max) IS TRUE
     ORDER BY xid, id LIMIT :count)
) AS new
ORDER BY new.xid, new.id LIMIT :count;

-- name: route :many
-- The whole of matching stands here: one saga per event and subscription that was eligible when the
-- event was created, and is now. Repeating it, or doing it on two machines at once, inserts nothing
-- twice.
INSERT INTO webhook_delivery_sagas (event_id, subscription_id, bucket)
SELECT e.id, s.id, e.bucket
FROM (
    SELECT id, :bucket::smallint AS bucket FROM unnest(:event_ids::bigint[]) AS given (id) OFFSET 0
) AS given
JOIN events e ON e.id = given.id AND e.bucket = given.bucket
JOIN subscriptions s ON s.tenant = e.tenant AND s.event_type = e.event_type
    AND s.active AND s.verified
    AND (s.eligible_from <= e.created_at OR s.eligible_first <= e.created_at AND (
        SELECT h.eligible_until FROM subscription_eligibility h
        WHERE h.subscription_id = s.id AND h.pattern = s.event_type AND h.tenant = s.tenant
          AND h.eligible_from <= e.created_at AND h.eligible_from >= s.eligible_first
        ORDER BY h.eligible_from DESC LIMIT 1) > e.created_at)
ORDER BY e.id, s.id
ON CONFLICT DO NOTHING
RETURNING id, event_id, subscription_id;

-- name: hold :many
-- Only after an interval has ended since one of these events was created: who was eligible then and
-- was not when it was routed gets it when it is eligible again. Who has become so meanwhile too.
INSERT INTO router_held (bucket, subscription_id, event_id)
SELECT e.bucket, s.id, e.id
FROM (
    SELECT id, :bucket::smallint AS bucket FROM unnest(:event_ids::bigint[]) AS given (id) OFFSET 0
) AS given
JOIN events e ON e.id = given.id AND e.bucket = given.bucket
JOIN subscriptions s ON s.tenant = e.tenant AND s.event_type = e.event_type
    AND COALESCE(s.eligible_until, 'infinity') > e.created_at
    AND (s.eligible_until IS NOT NULL OR s.active AND s.verified)
    AND (s.eligible_from <= e.created_at OR s.eligible_first <= e.created_at AND (
        SELECT h.eligible_until FROM subscription_eligibility h
        WHERE h.subscription_id = s.id AND h.pattern = s.event_type AND h.tenant = s.tenant
          AND h.eligible_from <= e.created_at AND h.eligible_from >= s.eligible_first
        ORDER BY h.eligible_from DESC LIMIT 1) > e.created_at)
WHERE NOT EXISTS (
    SELECT 1 FROM webhook_delivery_sagas g
    WHERE g.event_id = e.id AND g.subscription_id = s.id AND g.requeued_from = 0
      AND g.bucket = e.bucket)
ORDER BY s.id, e.id
ON CONFLICT DO NOTHING
RETURNING event_id;

-- name: recently_eligible :many
SELECT id, eligible_from, tenant, event_type FROM subscriptions
WHERE active AND verified
  AND eligible_from > surehook_now() - interval '1 second' * :seconds::float8;

-- name: recently_ended :many
-- Intervals that were over before anyone could look at them.
SELECT s.id, h.eligible_from, s.tenant, s.event_type, h.eligible_until
FROM subscription_eligibility h /*mysql FORCE INDEX (idx_eligibility_until) */
JOIN subscriptions s ON s.id = h.subscription_id AND s.tenant = h.tenant
    AND s.event_type = h.pattern AND s.eligible_first <= h.eligible_from
WHERE h.eligible_until > surehook_now() - interval '1 second' * :seconds::float8
  AND h.eligible_from > surehook_now() - interval '1 second' * :seconds::float8;

-- name: unrouted_since :many
-- Events of these intervals that were routed while the change that began one was not yet committed,
-- though its time was earlier. Each subscription's by idx_event_type, whose columns as a row no
-- other index has, and in its order; each event probes its saga and its note by key.
SELECT e.id, s.id
FROM unnest(:subscription_ids::bigint[], :since::timestamptz[], :until::timestamptz[])
    AS given (id, since, until)
JOIN subscriptions s ON s.id = given.id
CROSS JOIN LATERAL (
    SELECT e.id FROM events e
    WHERE e.bucket = :bucket AND (e.tenant = s.tenant) IS TRUE
      AND (e.event_type, e.created_at) >= (s.event_type, given.since)
      AND (e.event_type, e.created_at) <= (s.event_type, surehook_now())
      AND (e.created_at < COALESCE(given.until, 'infinity')) IS TRUE
      AND NOT EXISTS (
          SELECT 1 FROM webhook_delivery_sagas g
          WHERE g.event_id = e.id AND g.subscription_id = s.id AND g.requeued_from = 0
            AND g.bucket = :bucket
          OFFSET 0)
      AND NOT EXISTS (
          SELECT 1 FROM router_held h
          WHERE h.bucket = :bucket AND h.subscription_id = s.id AND h.event_id = e.id
          OFFSET 0)
    ORDER BY e.event_type, e.created_at LIMIT :count
) AS e
LIMIT :count;

-- name: held_for :many
SELECT h.event_id, h.subscription_id
FROM router_held h
JOIN subscriptions s ON s.id = h.subscription_id AND s.active AND s.verified
WHERE h.bucket = :bucket AND h.subscription_id = ANY (:subscription_ids::bigint[])
LIMIT :count;

-- name: held :many
SELECT h.event_id, h.subscription_id
FROM router_held h
JOIN subscriptions s ON s.id = h.subscription_id AND s.active AND s.verified
WHERE h.bucket = :bucket
LIMIT :count;

-- name: let_go :none
-- What has its saga, or is wanted no more.
DELETE FROM router_held h
WHERE h.bucket = :bucket
  AND (h.subscription_id, h.event_id) IN (
      SELECT given.subscription_id, given.event_id
      FROM unnest(:subscription_ids::bigint[], :event_ids::bigint[])
          AS given (subscription_id, event_id))
  AND (EXISTS (
          SELECT 1 FROM webhook_delivery_sagas g
          WHERE g.event_id = h.event_id AND g.subscription_id = h.subscription_id
            AND g.requeued_from = 0 AND g.bucket = :bucket)
      OR NOT EXISTS (
          SELECT 1 FROM subscriptions s
          JOIN events e ON e.id = h.event_id AND e.bucket = :bucket
          WHERE s.id = h.subscription_id AND s.eligible_first <= e.created_at));

-- name: save_cursor :one
UPDATE router_cursor
SET snapshot = :snapshot::pg_snapshot, partial_xid = :partial_xid::xid8, partial_id = :partial_id,
    updated_at = surehook_now()
WHERE bucket = :bucket
RETURNING (SELECT max(eligible_until) FROM subscription_eligibility);
