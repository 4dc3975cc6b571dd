-- Cleaner: UPDATE jobs whose lease has expired. Lanes by their numbers: each a range of the index.

-- name: reset_expired_leases :many
-- The predicate stands inside the statement, and where it holds the row is locked: a lease that is
-- renewed or finished meanwhile is left alone. Rows that are locked by others are being written
-- right now: skipped, and seen again next time.
WITH expired AS MATERIALIZED (
    SELECT id, lease_until, bucket FROM webhook_delivery_jobs
    WHERE bucket = :bucket AND status = 'Leased' AND lane IN (0, 1, 2, 3, 4)
      AND lease_until < surehook_now()
    ORDER BY lease_until LIMIT :count
    FOR UPDATE SKIP LOCKED
)
UPDATE webhook_delivery_jobs j
SET status = CASE WHEN j.lease_resets + 1 >= :expiries_max
        THEN 'Failed'::job_status ELSE 'Pending'::job_status END,
    lease_resets = j.lease_resets + 1,
    lease_until = NULL,
    lease_token = NULL,
    error_code = CASE WHEN j.lease_resets + 1 >= :expiries_max THEN :error_code::varchar END,
    finished_at = CASE WHEN j.lease_resets + 1 >= :expiries_max THEN surehook_now() END
FROM expired
WHERE j.id = expired.id AND j.bucket = expired.bucket
RETURNING j.id, j.saga_id, j.event_id, j.status, j.lease_resets, j.worker_id,
    expired.lease_until, j.error_code;

-- name: next_expiry :one
SELECT EXTRACT(EPOCH FROM lease_until - surehook_now())::float8 AS seconds
FROM webhook_delivery_jobs
WHERE bucket = :bucket AND status = 'Leased' AND lane IN (0, 1, 2, 3, 4)
ORDER BY lease_until LIMIT 1;
