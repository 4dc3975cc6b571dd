-- Observer: reads all but secrets, writes nothing. `check_…` statements return what breaks an
-- invariant: an id or two and a sentence's worth of facts. :since bounds the age of what is looked
-- at, :margin is how long two tables may be apart.

-- name: check_duplicate_sagas :many
-- The unique key forbids it inside a bucket; across buckets only this sees it.
SELECT event_id, subscription_id, 'requeued_from ' || requeued_from || ': ' || count(*) || ' sagas'
FROM webhook_delivery_sagas
WHERE created_at >= :since
GROUP BY event_id, subscription_id, requeued_from
HAVING count(*) > 1
LIMIT :count;

-- name: check_missing_sagas :many
-- An event that a subscription is due has its saga. Eligible since then and ever since: what was
-- switched off or changed in between is not judged.
SELECT e.id, s.id, 'event of ' || e.created_at
FROM events e
JOIN subscriptions s ON s.tenant = e.tenant AND s.event_type = e.event_type
    AND s.active AND s.verified
    AND s.eligible_from + interval '1 second' * :margin::float8 <= e.created_at
WHERE e.created_at >= :since
  AND e.created_at < surehook_now() - interval '1 second' * :margin::float8
  AND NOT EXISTS (
      SELECT 1 FROM webhook_delivery_sagas g
      WHERE g.event_id = e.id AND g.subscription_id = s.id AND g.requeued_from = 0
        AND g.bucket = e.bucket)
LIMIT :count;

-- name: check_stray_sagas :many
-- A saga belongs to an event and a subscription of the same tenant that exist.
SELECT g.id, g.event_id, 'subscription ' || g.subscription_id
FROM webhook_delivery_sagas g
LEFT JOIN events e ON e.id = g.event_id AND e.bucket = g.bucket
LEFT JOIN subscriptions s ON s.id = g.subscription_id
WHERE g.created_at >= :since AND (e.id IS NULL OR s.id IS NULL OR s.tenant <> e.tenant)
LIMIT :count;

-- name: check_two_active_jobs :many
SELECT saga_id, max(id), count(*) || ' active jobs'
FROM webhook_delivery_jobs
WHERE status IN ('Pending', 'Leased')
GROUP BY saga_id
HAVING count(*) > 1
LIMIT :count;

-- name: check_attempt_counts :many
-- A finished saga has applied each of its jobs once; one under way has at most one job more.
SELECT g.id, g.event_id, g.status || ' with attempt_count ' || g.attempt_count || ', '
    || count(j.id) FILTER (WHERE j.status IN ('Completed', 'Failed')) || ' finished jobs of '
    || count(j.id)
FROM webhook_delivery_sagas g
LEFT JOIN webhook_delivery_jobs j ON j.saga_id = g.id AND j.bucket = g.bucket
WHERE g.created_at >= :since
  AND g.updated_at < surehook_now() - interval '1 second' * :margin::float8
GROUP BY g.id, g.event_id, g.status, g.attempt_count
HAVING CASE WHEN g.status IN ('Completed', 'DeadLettered')
    THEN count(j.id) FILTER (WHERE j.status IN ('Completed', 'Failed')) <> g.attempt_count
        OR count(j.id) <> g.attempt_count
    ELSE count(j.id) > g.attempt_count + 1 END
LIMIT :count;

-- name: check_completed_without_delivery :many
-- Completed only because its last job is.
SELECT g.id, g.event_id, 'last job ' || COALESCE(last.status::text, 'missing')
FROM webhook_delivery_sagas g
LEFT JOIN LATERAL (
    SELECT status FROM webhook_delivery_jobs j
    WHERE j.saga_id = g.id AND j.bucket = g.bucket
    ORDER BY j.attempt_at DESC LIMIT 1
) AS last ON true
WHERE g.created_at >= :since AND g.status = 'Completed'
  AND last.status IS DISTINCT FROM 'Completed'
LIMIT :count;

-- name: check_active_job_of_finished_saga :many
SELECT j.saga_id, j.id, 'a ' || j.status || ' job of a ' || g.status || ' saga'
FROM webhook_delivery_jobs j
JOIN webhook_delivery_sagas g ON g.id = j.saga_id AND g.bucket = j.bucket
WHERE j.status IN ('Pending', 'Leased') AND g.status IN ('Completed', 'DeadLettered')
LIMIT :count;

-- name: check_dead_letter_missing :many
SELECT g.id, g.event_id, 'died ' || g.updated_at
FROM webhook_delivery_sagas g
WHERE g.status = 'DeadLettered' AND g.updated_at >= :since
  AND g.updated_at < surehook_now() - interval '1 second' * :margin::float8
  AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.saga_id = g.id AND d.bucket = g.bucket)
LIMIT :count;

-- name: check_dead_letter_of_the_living :many
SELECT d.id, d.saga_id, 'saga ' || COALESCE(g.status::text, 'missing')
FROM dead_letters d
LEFT JOIN webhook_delivery_sagas g ON g.id = d.saga_id AND g.bucket = d.bucket
WHERE d.failed_at >= :since AND g.status IS DISTINCT FROM 'DeadLettered'
LIMIT :count;

-- name: check_requeued_twice :many
SELECT requeued_from, max(id), count(*) || ' sagas'
FROM webhook_delivery_sagas
WHERE created_at >= :since AND requeued_from <> 0
GROUP BY requeued_from
HAVING count(*) > 1
LIMIT :count;

-- name: check_in_progress_without_job :many
SELECT g.id, g.event_id, 'attempt of ' || g.next_attempt_at
FROM webhook_delivery_sagas g
WHERE g.status = 'InProgress' AND NOT EXISTS (
    SELECT 1 FROM webhook_delivery_jobs j
    WHERE j.saga_id = g.id AND j.attempt_at = g.next_attempt_at AND j.bucket = g.bucket)
LIMIT :count;
