-- Worker: UPDATE jobs (lease and result columns), nothing else.
-- Only on PostgreSQL: lease_known_jobs

-- name: any_waits :one
-- What an idle worker asks, without a transaction.
SELECT EXISTS (
    SELECT 1 FROM webhook_delivery_jobs FORCE INDEX (idx_job_status_lease)
    WHERE bucket = :bucket AND status = 'Pending' AND lane BETWEEN :first_lane AND :last_lane
      AND lease_resets = 0
) AS waits;

-- name: pick_jobs :many
-- From these lanes, the first ones first: as many as there are free slots. Jobs that once outlived
-- their lease are left to pick_known_jobs.
SELECT id, saga_id, event_id, subscription_id, lease_resets, lane
FROM webhook_delivery_jobs FORCE INDEX (idx_job_status_lease)
WHERE bucket = :bucket AND status = 'Pending' AND lane BETWEEN :first_lane AND :last_lane
  AND lease_resets = 0
ORDER BY lane, lease_until, id LIMIT :count
FOR UPDATE SKIP LOCKED;

-- name: pick_known_jobs :many
-- These, as far as they still wait: one that outlived a lease, or such as wait behind others that
-- hang and now go by another lane.
SELECT id, saga_id, event_id, subscription_id, lease_resets, COALESCE(:lane, lane) AS lane
FROM webhook_delivery_jobs FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id IN :job_ids AND status = 'Pending'
  AND (lease_resets > 0) = :suspect
ORDER BY id
FOR UPDATE SKIP LOCKED;

-- name: waiting_jobs :many
-- What waits in a lane, and whether its tenant has requests that last. Only read while all that is
-- under way in that lane hangs.
SELECT j.id, j.subscription_id, s.tenant IN (
    SELECT h.tenant FROM subscriptions h WHERE h.id IN :subscription_ids
) AS tenant_hangs
FROM (
    SELECT id, subscription_id FROM webhook_delivery_jobs FORCE INDEX (idx_job_status_lease)
    WHERE bucket = :bucket AND status = 'Pending' AND lane = :lane AND lease_resets = 0
    ORDER BY lane, lease_until, id LIMIT :count
) AS j
JOIN subscriptions s ON s.id = j.subscription_id
ORDER BY j.id;

-- name: payload_sizes :many
-- Told apart from the payloads: no more of these are read than there is room for.
SELECT id, LENGTH(payload) FROM events FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id IN :event_ids;

-- name: read_events :many
SELECT id, event_type, payload,
    TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) / 1e6 AS age_seconds
FROM events FORCE INDEX (PRIMARY) WHERE bucket = :bucket AND id IN :event_ids;

-- name: read_targets :many
SELECT id, callback_url, active AND verified AS deliverable, request_timeout_seconds,
    custom_headers
FROM subscriptions WHERE id IN :subscription_ids;

-- name: lease_times :one
SELECT UTC_TIMESTAMP(6) AS leased_at,
    UTC_TIMESTAMP(6) + INTERVAL :lease_microseconds MICROSECOND AS lease_until;

-- name: lease_jobs :none
UPDATE webhook_delivery_jobs FORCE INDEX (PRIMARY)
SET status = 'Leased', lease_token = :lease_token, worker_id = :worker_id,
    lease_until = :lease_until, started_at = :leased_at, lane = COALESCE(:lane, lane)
WHERE bucket = :bucket AND id IN :job_ids AND status = 'Pending';

-- name: suspect_job :one
-- A job that outlived a lease may have killed its worker: the first such one that waits.
SELECT id FROM webhook_delivery_jobs FORCE INDEX (idx_job_status_lease)
WHERE bucket = :bucket AND status = 'Pending' AND lease_resets > 0
ORDER BY lane, lease_until, id LIMIT 1;

-- name: finish_jobs :none
-- A failure only by the lease's owner; a success also after the lease was lost, because the
-- endpoint has it: a second send would be for nothing. A lease that was lost has been reset: a job
-- that was not is another's, which a standby has given the number of one that it never heard of.
-- (The texts would be in the character set that the database was made with, often latin1.)
UPDATE JSON_TABLE(:given, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', status VARCHAR(20) PATH '$[1]', response_status INT PATH '$[2]',
    error_code VARCHAR(100) PATH '$[3]', retry_after INT PATH '$[4]',
    response_excerpt VARCHAR(1000) CHARACTER SET utf8mb4 PATH '$[5]',
    failure_detail VARCHAR(1000) CHARACTER SET utf8mb4 PATH '$[6]',
    lease_token BIGINT PATH '$[7]', lease_resets INT PATH '$[8]'
)) AS given
STRAIGHT_JOIN webhook_delivery_jobs j FORCE INDEX (PRIMARY)
    ON j.id = given.id AND j.bucket = :bucket
SET j.status = given.status, j.response_status = given.response_status,
    j.error_code = given.error_code, j.retry_after = given.retry_after,
    j.response_excerpt = given.response_excerpt, j.failure_detail = given.failure_detail,
    j.worker_id = :worker_id, j.finished_at = UTC_TIMESTAMP(6)
WHERE j.status = 'Leased' AND j.lease_token = given.lease_token
   OR given.status = 'Completed' AND j.status IN ('Pending', 'Leased')
      AND j.lease_resets > given.lease_resets;

-- name: finished_jobs :many
-- Which of these are finished by this worker.
SELECT id, saga_id, status FROM webhook_delivery_jobs FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id IN :job_ids AND status IN ('Completed', 'Failed')
  AND worker_id = :worker_id;

-- name: held_jobs :many
SELECT id, lease_token FROM webhook_delivery_jobs FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id IN :job_ids AND status = 'Leased'
ORDER BY id FOR UPDATE;

-- name: give_back_jobs :none
UPDATE webhook_delivery_jobs FORCE INDEX (PRIMARY)
SET status = 'Pending', lease_until = NULL, lease_token = NULL, worker_id = NULL,
    started_at = NULL, lane = COALESCE(:lane, lane)
WHERE bucket = :bucket AND id IN :job_ids AND status = 'Leased';
