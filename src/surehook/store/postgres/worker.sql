-- Worker: UPDATE jobs (lease and result columns), nothing else.

-- name: lease_jobs :many
-- From these lanes, the first ones first: as many as there are free slots, and no more payload than
-- there is room for (the first always).
-- What is stored compressed counts as large as it will be.
-- Jobs that once outlived their lease are left to lease_known_jobs.
WITH picked AS MATERIALIZED (
    SELECT id, event_id, subscription_id, bucket FROM webhook_delivery_jobs
    WHERE bucket = :bucket AND status = 'Pending' AND lane BETWEEN :first_lane AND :last_lane
      AND lease_resets = 0
    ORDER BY lane, lease_until, id LIMIT :count
    FOR UPDATE SKIP LOCKED
), filled AS (
    -- In the order of the pick; a window that sorted them would copy every payload once more.
    SELECT p.id, p.bucket, e.event_type, e.created_at, e.payload, s.callback_url,
        s.active AND s.verified AS deliverable, s.request_timeout_seconds, s.custom_headers,
        sum(CASE WHEN pg_column_compression(e.payload) IS NULL
                THEN pg_column_size(e.payload) ELSE octet_length(e.payload::text) END)
            OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM picked p
    JOIN events e ON e.id = p.event_id AND e.bucket = p.bucket
    JOIN subscriptions s ON s.id = p.subscription_id
)
UPDATE webhook_delivery_jobs j
SET status = 'Leased', lease_token = :lease_token, worker_id = :worker_id,
    lease_until = surehook_now() + interval '1 second' * :lease_seconds::float8,
    started_at = surehook_now()
FROM filled f
WHERE j.id = f.id AND j.bucket = f.bucket AND COALESCE(f.bytes_before, 0) < :bytes::bigint
RETURNING j.id, j.saga_id, j.event_id, j.subscription_id, j.lease_resets, j.started_at,
    j.lease_until, f.event_type, f.payload, f.callback_url, f.deliverable,
    f.request_timeout_seconds, f.custom_headers,
    EXTRACT(epoch FROM surehook_now() - f.created_at)::float8 AS event_age_seconds, j.lane;

-- name: lease_known_jobs :many
-- These, as far as they still wait and there is room for their payload (for the first always): one
-- that outlived a lease, or such as wait behind others that hang and now go by another lane.
WITH picked AS MATERIALIZED (
    SELECT j.id, j.event_id, j.subscription_id, j.bucket
    FROM (
        SELECT id, :bucket::smallint AS bucket FROM unnest(:job_ids::bigint[]) AS given (id)
        OFFSET 0
    ) AS given
    JOIN webhook_delivery_jobs j ON j.id = given.id AND j.bucket = given.bucket
    WHERE (j.status = 'Pending' AND (j.lease_resets > 0) = :suspect::boolean) IS TRUE
    FOR UPDATE OF j SKIP LOCKED
), filled AS (
    SELECT p.id, p.bucket, e.event_type, e.created_at, e.payload, s.callback_url,
        s.active AND s.verified AS deliverable, s.request_timeout_seconds, s.custom_headers,
        sum(CASE WHEN pg_column_compression(e.payload) IS NULL
                THEN pg_column_size(e.payload) ELSE octet_length(e.payload::text) END)
            OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM picked p
    JOIN events e ON e.id = p.event_id AND e.bucket = p.bucket
    JOIN subscriptions s ON s.id = p.subscription_id
)
UPDATE webhook_delivery_jobs j
SET status = 'Leased', lease_token = :lease_token, worker_id = :worker_id,
    lease_until = surehook_now() + interval '1 second' * :lease_seconds::float8,
    started_at = surehook_now(), lane = COALESCE(:lane::smallint, j.lane)
FROM filled f
WHERE j.id = f.id AND j.bucket = f.bucket AND COALESCE(f.bytes_before, 0) < :bytes::bigint
RETURNING j.id, j.saga_id, j.event_id, j.subscription_id, j.lease_resets, j.started_at,
    j.lease_until, f.event_type, f.payload, f.callback_url, f.deliverable,
    f.request_timeout_seconds, f.custom_headers,
    EXTRACT(epoch FROM surehook_now() - f.created_at)::float8 AS event_age_seconds, j.lane;

-- name: waiting_jobs :many
-- What waits in a lane, and whether its tenant has requests that last. Only read while all that is
-- under way in that lane hangs.
SELECT j.id, j.subscription_id, s.tenant IN (
    SELECT h.tenant FROM subscriptions h WHERE h.id = ANY (:subscription_ids::bigint[])
) AS tenant_hangs
FROM (
    SELECT id, subscription_id FROM webhook_delivery_jobs
    WHERE bucket = :bucket AND status = 'Pending' AND lane = :lane AND lease_resets = 0
    ORDER BY lane, lease_until, id LIMIT :count
) AS j
JOIN subscriptions s ON s.id = j.subscription_id
ORDER BY j.id;

-- name: newest_secret :many
SELECT sealed FROM subscription_secrets ORDER BY id DESC LIMIT 1;

-- name: live_secrets :many
-- Every secret that still signs: during a rotation there are several.
SELECT subscription_id, sealed FROM subscription_secrets
WHERE subscription_id = ANY (:subscription_ids::bigint[])
  AND (expires_at IS NULL OR expires_at > surehook_now())
ORDER BY subscription_id, id DESC;

-- name: suspect_job :one
-- A job that outlived a lease may have killed its worker: the first such one that waits.
SELECT id FROM webhook_delivery_jobs
WHERE bucket = :bucket AND status = 'Pending' AND lease_resets > 0
ORDER BY lane, lease_until, id LIMIT 1;

-- name: finish_jobs :many
-- A failure only by the lease's owner; a success also after the lease was lost, because the
-- endpoint has it: a second send would be for nothing. A lease that was lost has been reset: a job
-- that was not is another's, which a standby has given the number of one that it never heard of.
UPDATE webhook_delivery_jobs j
SET status = given.status, response_status = given.response_status,
    error_code = given.error_code, retry_after = given.retry_after,
    response_excerpt = given.response_excerpt, failure_detail = given.failure_detail,
    worker_id = :worker_id, finished_at = surehook_now()
FROM (
    SELECT id, status, response_status, error_code, retry_after, response_excerpt, failure_detail,
        lease_token, lease_resets, :bucket::smallint AS bucket
    FROM unnest(:job_ids::bigint[], :statuses::job_status[], :response_statuses::integer[],
                :error_codes::varchar[], :retry_afters::integer[], :response_excerpts::varchar[],
                :failure_details::varchar[], :lease_tokens::bigint[], :lease_resets::integer[])
        AS given (id, status, response_status, error_code, retry_after, response_excerpt,
                  failure_detail, lease_token, lease_resets)
    OFFSET 0
) AS given
WHERE j.id = given.id AND j.bucket = given.bucket
  AND (j.status = 'Leased' AND j.lease_token = given.lease_token
       OR given.status = 'Completed' AND j.status IN ('Pending', 'Leased')
          AND j.lease_resets > given.lease_resets) IS TRUE
RETURNING j.id, j.saga_id;

-- name: give_back_jobs :many
UPDATE webhook_delivery_jobs j
SET status = 'Pending', lease_until = NULL, lease_token = NULL, worker_id = NULL,
    started_at = NULL, lane = COALESCE(:lane::smallint, j.lane)
FROM (
    SELECT id, lease_token, :bucket::smallint AS bucket
    FROM unnest(:job_ids::bigint[], :lease_tokens::bigint[]) AS given (id, lease_token)
    OFFSET 0
) AS given
WHERE j.id = given.id AND j.bucket = given.bucket
  AND (j.status = 'Leased' AND j.lease_token = given.lease_token) IS TRUE
RETURNING j.id;
