-- Dead letters: INSERT dead_letters for dead sagas, INSERT new sagas when one is requeued.

-- name: create_cursor :none
INSERT INTO dead_letter_cursor (bucket) VALUES (:bucket) ON CONFLICT DO NOTHING;

-- name: read_cursor :one
-- A cursor that is ahead of the clock says that the clock was set back: look at all of them.
SELECT swept_until,
    swept_until > surehook_now() OR rewalked_at > surehook_now()
        OR rewalked_at < surehook_now() - interval '1 second' * :rewalk_seconds::float8 AS rewalk,
    surehook_now() AS now
FROM dead_letter_cursor WHERE bucket = :bucket;

-- name: save_cursor :none
UPDATE dead_letter_cursor
SET swept_until = :swept_until,
    rewalked_at = CASE WHEN :rewalked THEN surehook_now() ELSE rewalked_at END
WHERE bucket = :bucket;

-- name: dead_sagas :many
-- One page of dead sagas in order of death, each with whether it is written down: a probe per
-- saga (EXISTS would read all dead letters into a hash table instead).
SELECT s.updated_at, s.id, (
    SELECT d.id FROM dead_letters d WHERE d.saga_id = s.id AND d.bucket = :bucket
) IS NOT NULL AS written
FROM webhook_delivery_sagas s
WHERE s.bucket = :bucket AND s.status = 'DeadLettered'
  AND (s.updated_at, s.id) > (:after, :after_id)
ORDER BY s.updated_at, s.id LIMIT :count;

-- name: write_dead_letters :many
-- The saga never changes again, so this may be repeated; the unique saga_id keeps the first row.
-- With who made the last attempt, for the log.
WITH written AS (
    INSERT INTO dead_letters
        (saga_id, event_id, subscription_id, final_error_code, failed_at, payload_snapshot, bucket)
    SELECT s.id, s.event_id, s.subscription_id, s.final_error_code, s.updated_at, e.payload,
        s.bucket
    FROM (
        SELECT id, :bucket::smallint AS bucket
        FROM unnest(:saga_ids::bigint[]) AS given (id) OFFSET 0
    ) AS given
    JOIN webhook_delivery_sagas s ON s.id = given.id AND s.bucket = given.bucket
        AND (s.status = 'DeadLettered') IS TRUE
    JOIN events e ON e.id = s.event_id AND e.bucket = given.bucket
    ORDER BY s.id
    ON CONFLICT DO NOTHING
    RETURNING id, saga_id, event_id, subscription_id, final_error_code, bucket
)
SELECT w.id, w.saga_id, w.event_id, w.subscription_id, w.final_error_code,
    last.id AS job_id, last.worker_id, last.lease_until
FROM written w
LEFT JOIN LATERAL (
    SELECT id, worker_id, lease_until FROM webhook_delivery_jobs j
    WHERE j.saga_id = w.saga_id AND j.bucket = :bucket
    ORDER BY j.attempt_at DESC LIMIT 1
) AS last ON true;

-- name: find_dead_letters :many
-- What a requeue by filter would take of the next :count dead letters: not requeued yet, oldest
-- first. Only so many are looked at, however few fit; each row carries the last id of them, and one
-- row does when none fits.
WITH looked_at AS MATERIALIZED (
    SELECT id, event_id, subscription_id, final_error_code, failed_at, bucket
    FROM dead_letters /*mysql FORCE INDEX (PRIMARY) */
    WHERE bucket = :bucket AND id > :after_id
    ORDER BY id LIMIT :count
), fitting AS (
    SELECT d.id
    FROM looked_at d
    JOIN subscriptions s ON s.id = d.subscription_id
    JOIN events e ON e.id = d.event_id AND e.bucket = d.bucket
    WHERE (:tenant::varchar IS NULL OR s.tenant = :tenant)
      AND (:subscription_id::bigint IS NULL OR d.subscription_id = :subscription_id)
      AND (:event_type::varchar IS NULL OR e.event_type = :event_type)
      AND (:error_code::varchar IS NULL OR d.final_error_code = :error_code)
      AND (:failed_from::timestamptz IS NULL OR d.failed_at >= :failed_from)
      AND (:failed_until::timestamptz IS NULL OR d.failed_at < :failed_until)
      AND NOT EXISTS (
          SELECT 1 FROM webhook_delivery_sagas n
          WHERE n.event_id = d.event_id AND n.subscription_id = d.subscription_id
            AND n.requeued_from = d.id AND n.bucket = :bucket)
)
SELECT last.id AS last_id, fitting.id
FROM (SELECT max(id) AS id FROM looked_at) AS last
LEFT JOIN fitting ON true
ORDER BY fitting.id;

-- name: requeue :many
-- A new saga beside the old one, once per dead letter; no old row is touched, no job made.
INSERT INTO webhook_delivery_sagas (event_id, subscription_id, requeued_from, bucket)
SELECT d.event_id, d.subscription_id, d.id, d.bucket
FROM (
    SELECT id, :bucket::smallint AS bucket
    FROM unnest(:dead_letter_ids::bigint[]) AS given (id)
    OFFSET 0
) AS given
JOIN dead_letters d ON d.id = given.id AND d.bucket = given.bucket
JOIN subscriptions s ON s.id = d.subscription_id AND s.active AND s.verified
ORDER BY d.id
ON CONFLICT DO NOTHING
RETURNING id;

-- name: requeued :many
-- What became of these dead letters.
SELECT d.id, d.event_id, n.id AS saga_id, s.active AND s.verified AS deliverable
FROM dead_letters d
JOIN subscriptions s ON s.id = d.subscription_id
LEFT JOIN webhook_delivery_sagas n ON n.event_id = d.event_id
    AND n.subscription_id = d.subscription_id AND n.requeued_from = d.id AND n.bucket = d.bucket
WHERE d.bucket = :bucket AND d.id = ANY (:dead_letter_ids::bigint[])
ORDER BY d.id;
