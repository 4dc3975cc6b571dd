-- Cleaner: UPDATE jobs whose lease has expired. Lanes by their numbers: each a range of the index.

-- name: expired_leases :many
-- Locked rows are being written right now: skipped, and seen again next time.
SELECT id, saga_id, event_id, lease_resets, worker_id, lease_until
FROM webhook_delivery_jobs FORCE INDEX (idx_job_status_lease)
WHERE bucket = :bucket AND status = 'Leased' AND lane IN (0, 1, 2, 3, 4)
  AND lease_until < UTC_TIMESTAMP(6)
ORDER BY lease_until LIMIT :count
FOR UPDATE SKIP LOCKED;

-- name: reset_expired_leases :none
UPDATE webhook_delivery_jobs FORCE INDEX (PRIMARY)
SET status = 'Pending', lease_resets = lease_resets + 1, lease_until = NULL, lease_token = NULL
WHERE bucket = :bucket AND id IN :job_ids AND status = 'Leased';

-- name: fail_expired_leases :none
UPDATE webhook_delivery_jobs FORCE INDEX (PRIMARY)
SET status = 'Failed', lease_resets = lease_resets + 1, lease_until = NULL, lease_token = NULL,
    error_code = :error_code, finished_at = UTC_TIMESTAMP(6)
WHERE bucket = :bucket AND id IN :job_ids AND status = 'Leased';

-- name: next_expiry :one
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until) / 1e6 AS seconds
FROM webhook_delivery_jobs FORCE INDEX (idx_job_status_lease)
WHERE bucket = :bucket AND status = 'Leased' AND lane IN (0, 1, 2, 3, 4)
ORDER BY lease_until LIMIT 1;
