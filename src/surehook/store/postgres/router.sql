-- Router: reads events without their payload, inserts sagas, keeps its cursor.

-- name: create_cursor :none
-- Server 0 is nobody's: the first step sees another server and begins with a rescan.
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
SELECT id FROM events
WHERE bucket = :bucket AND id > :after_id AND id <= :until_id
ORDER BY id LIMIT :count;

-- name: save_rescan :none
UPDATE router_cursor
SET rescan_after_id = :after_id, updated_at = surehook_now()
WHERE bucket = :bucket;

-- name: new_events :many
-- What the saved snapshot could not see and this one can: the transactions that were under way
-- then, and those that began later. In order of (xid, id); an event seen in part goes on where it
-- stopped. Restored events may carry xids that this server has yet to reach: not new.
SELECT new.id, new.xid, pg_current_snapshot() AS snapshot
FROM (
    (SELECT e.id, e.xid
     FROM unnest(:in_flight::xid8[]) AS given (xid)
     CROSS JOIN LATERAL (
         SELECT id, xid FROM events
         WHERE bucket = :bucket AND xid = given.xid
           AND id > CASE WHEN given.xid = :partial_xid::xid8 THEN :partial_id::bigint ELSE 0 END
         ORDER BY id LIMIT :count
     ) e
     ORDER BY e.xid, e.id LIMIT :count)
    UNION ALL
    (SELECT id, xid
     FROM events
     WHERE bucket = :bucket AND (xid, id) > (:from_xid::xid8, :from_id)
       AND xid < pg_snapshot_xmax(pg_current_snapshot()) AND (id > :foreign_id_max) IS TRUE
     ORDER BY xid, id LIMIT :count)
) AS new
ORDER BY new.xid, new.id LIMIT :count;

-- name: route :many
-- The whole of matching stands here: one saga per event and subscription that wants it. Repeating
-- it, or doing it on two machines at once, inserts nothing twice.
INSERT INTO webhook_delivery_sagas (event_id, subscription_id, bucket)
SELECT e.id, s.id, e.bucket
FROM (
    SELECT id, :bucket::smallint AS bucket FROM unnest(:event_ids::bigint[]) AS given (id) OFFSET 0
) AS given
JOIN events e ON e.id = given.id AND e.bucket = given.bucket
JOIN subscriptions s ON s.tenant = e.tenant AND s.event_type = e.event_type
    AND s.active AND s.verified AND s.eligible_from <= e.created_at
ORDER BY e.id, s.id
ON CONFLICT DO NOTHING
RETURNING id, event_id, subscription_id;

-- name: save_cursor :none
UPDATE router_cursor
SET snapshot = :snapshot::pg_snapshot, partial_xid = :partial_xid::xid8, partial_id = :partial_id,
    updated_at = surehook_now()
WHERE bucket = :bucket;
