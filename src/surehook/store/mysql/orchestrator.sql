-- Orchestrator: UPDATE sagas, INSERT jobs. No transaction writes both.
--
-- Statistics are taken when they are taken, often from an empty table: what must be found by a
-- certain index names it, here and in the other files.
-- Only on PostgreSQL: apply_results

-- name: due_subscriptions :many
-- Whose sagas are due, looked at from the oldest: first attempts and retries each get their view,
-- so that neither hides the other.
SELECT due.subscription_id, s.tenant, COUNT(*) AS due,
    s.rate_limit_per_second IS NOT NULL AS limited, o.slow, o.ramp
FROM (
    (SELECT subscription_id FROM webhook_delivery_sagas FORCE INDEX (idx_saga_status_retry)
     WHERE bucket = :bucket AND status = 'Pending' AND next_attempt_at <= UTC_TIMESTAMP(6)
     ORDER BY next_attempt_at LIMIT :count)
    UNION ALL
    (SELECT subscription_id FROM webhook_delivery_sagas FORCE INDEX (idx_saga_status_retry)
     WHERE bucket = :bucket AND status = 'PendingRetry' AND next_attempt_at <= UTC_TIMESTAMP(6)
     ORDER BY next_attempt_at LIMIT :count)
) AS due
STRAIGHT_JOIN subscriptions s ON s.id = due.subscription_id
LEFT JOIN orchestrator_subscriptions o ON o.subscription_id = due.subscription_id
GROUP BY due.subscription_id, s.tenant, s.rate_limit_per_second, o.slow, o.ramp;

-- name: newest_subscriptions :many
-- The same from the other end: a newcomer is seen at once, however long the queue is of
-- those that have to wait.
SELECT due.subscription_id, s.tenant, COUNT(*) AS due,
    s.rate_limit_per_second IS NOT NULL AS limited, o.slow, o.ramp
FROM (
    (SELECT subscription_id FROM webhook_delivery_sagas FORCE INDEX (idx_saga_status_retry)
     WHERE bucket = :bucket AND status = 'Pending' AND next_attempt_at <= UTC_TIMESTAMP(6)
     ORDER BY next_attempt_at DESC LIMIT :count)
    UNION ALL
    (SELECT subscription_id FROM webhook_delivery_sagas FORCE INDEX (idx_saga_status_retry)
     WHERE bucket = :bucket AND status = 'PendingRetry' AND next_attempt_at <= UTC_TIMESTAMP(6)
     ORDER BY next_attempt_at DESC LIMIT :count)
) AS due
STRAIGHT_JOIN subscriptions s ON s.id = due.subscription_id
LEFT JOIN orchestrator_subscriptions o ON o.subscription_id = due.subscription_id
GROUP BY due.subscription_id, s.tenant, s.rate_limit_per_second, o.slow, o.ramp;

-- name: rotate_subscriptions :many
-- The next subscriptions, by id, that have anything waiting: the way around those whose backlog
-- fills the view above while they are at their cap. Grouped by the index's own first columns, it
-- jumps from one subscription to the next instead of reading all that waits.
SELECT waiting.subscription_id, s.tenant, 0 AS due, s.rate_limit_per_second IS NOT NULL AS limited,
    o.slow, o.ramp
FROM (
    (SELECT subscription_id FROM webhook_delivery_sagas FORCE INDEX (idx_saga_waiting)
     WHERE bucket = :bucket AND waiting = 'Pending' AND subscription_id > :after_id
     GROUP BY bucket, waiting, subscription_id LIMIT :count)
    UNION
    (SELECT subscription_id FROM webhook_delivery_sagas FORCE INDEX (idx_saga_waiting)
     WHERE bucket = :bucket AND waiting = 'PendingRetry' AND subscription_id > :after_id
     GROUP BY bucket, waiting, subscription_id LIMIT :count)
) AS waiting
STRAIGHT_JOIN subscriptions s ON s.id = waiting.subscription_id
LEFT JOIN orchestrator_subscriptions o ON o.subscription_id = waiting.subscription_id
ORDER BY waiting.subscription_id LIMIT :count;

-- name: rotate_over_subscriptions :many
-- The same where there are partitions: no jumping there, so each subscription is probed instead.
SELECT s.id, s.tenant, 0 AS due, s.rate_limit_per_second IS NOT NULL AS limited, o.slow, o.ramp
FROM subscriptions s FORCE INDEX (PRIMARY)
LEFT JOIN orchestrator_subscriptions o ON o.subscription_id = s.id
WHERE s.id > :after_id AND (
    EXISTS (
        SELECT 1 FROM webhook_delivery_sagas g FORCE INDEX (idx_saga_waiting)
        WHERE g.bucket = :bucket AND g.waiting = 'Pending' AND g.subscription_id = s.id)
    OR EXISTS (
        SELECT 1 FROM webhook_delivery_sagas g FORCE INDEX (idx_saga_waiting)
        WHERE g.bucket = :bucket AND g.waiting = 'PendingRetry' AND g.subscription_id = s.id))
ORDER BY s.id LIMIT :count;

-- name: next_due :one
-- When something becomes due, so that an idle orchestrator sleeps until then.
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MIN(first.next_attempt_at)) / 1e6 AS seconds
FROM (
    (SELECT next_attempt_at FROM webhook_delivery_sagas FORCE INDEX (idx_saga_status_retry)
     WHERE bucket = :bucket AND status = 'Pending' ORDER BY next_attempt_at LIMIT 1)
    UNION ALL
    (SELECT next_attempt_at FROM webhook_delivery_sagas FORCE INDEX (idx_saga_status_retry)
     WHERE bucket = :bucket AND status = 'PendingRetry' ORDER BY next_attempt_at LIMIT 1)
) AS first;

-- name: count_open_jobs :many
-- Of each tenant in each lane; those that have been under way for long as 5 (express) and 6 (bulk,
-- unproven): a worker has given their slots to others. What was set aside takes no place.
SELECT s.tenant, open.now_in, COUNT(*)
FROM (
    SELECT subscription_id, CASE
        WHEN lane < 3 AND started_at <= UTC_TIMESTAMP(6) - INTERVAL :lasting_seconds SECOND
            THEN IF(lane = 0, 5, 6) ELSE lane END AS now_in
    FROM webhook_delivery_jobs FORCE INDEX (idx_job_status_lease)
    WHERE bucket = :bucket AND status IN ('Pending', 'Leased') AND lane < 4
    LIMIT :count
) AS open
STRAIGHT_JOIN subscriptions s ON s.id = open.subscription_id
GROUP BY s.tenant, open.now_in;

-- name: known_subscriptions :many
SELECT subscription_id FROM orchestrator_subscriptions
WHERE subscription_id IN :subscription_ids;

-- name: ensure_subscriptions :none
INSERT INTO orchestrator_subscriptions (subscription_id, ramp) VALUES :given;

-- name: lock_subscriptions :many
-- Nobody else counts or fills these until we commit; what another orchestrator holds is its own.
SELECT subscription_id, rate_tokens,
    TIMESTAMPDIFF(MICROSECOND, rate_refilled_at, UTC_TIMESTAMP(6)) / 1e6 AS refilled_seconds
FROM orchestrator_subscriptions
WHERE subscription_id IN :subscription_ids
ORDER BY subscription_id
FOR UPDATE SKIP LOCKED;

-- name: limits :many
SELECT id, concurrency_cap, rate_limit_per_second FROM subscriptions
WHERE id IN :subscription_ids;

-- name: open_jobs :many
-- A statement after the locks, so that it sees every job that the locks' former holders committed:
-- the cap is exact. In all buckets.
SELECT open_for, COUNT(*) FROM webhook_delivery_jobs FORCE INDEX (idx_job_open)
WHERE open_for IN :subscription_ids
GROUP BY open_for;

-- name: due_sagas :many
-- Of one subscription and one waiting status; many of these are asked at once, by UNION ALL.
(SELECT id, next_attempt_at, event_id, subscription_id, waiting
 FROM webhook_delivery_sagas FORCE INDEX (idx_saga_waiting)
 WHERE bucket = :bucket AND waiting = :waiting AND subscription_id = :subscription_id
   AND next_attempt_at <= UTC_TIMESTAMP(6)
 ORDER BY next_attempt_at LIMIT :count);

-- name: jobs_there :many
-- The leftovers of a crash: a job is there, its saga was not moved. The status is not in the index:
-- one that answers the whole question MySQL would walk from end to end while it believes that the
-- table is nearly empty.
SELECT saga_id, attempt_at, status
FROM webhook_delivery_jobs FORCE INDEX (uniq_job_saga_attempt)
WHERE bucket = :bucket AND saga_id IN :saga_ids;

-- name: create_jobs :none
-- attempt_at is copied, which makes the unique key refuse a second job for the same attempt.
INSERT INTO webhook_delivery_jobs (saga_id, attempt_at, event_id, subscription_id, bucket, lane)
VALUES :given;

-- name: spend_rate :none
-- Token bucket: what was refilled and spent is computed by the holder of the row.
UPDATE orchestrator_subscriptions
SET rate_tokens = :rate_tokens, rate_refilled_at = UTC_TIMESTAMP(6)
WHERE subscription_id = :subscription_id;

-- name: set_paces :none
-- How a subscription's endpoint did: `step` is 1 if it answered (its ramp grows until it is no
-- limit any more), -1 if it hung (one at a time, for now), 0 if nothing has ended.
UPDATE JSON_TABLE(:given, '$[*]' COLUMNS (
    subscription_id BIGINT PATH '$[0]', slow INT PATH '$[1]', step INT PATH '$[2]'
)) AS given
STRAIGHT_JOIN subscriptions s ON s.id = given.subscription_id
STRAIGHT_JOIN orchestrator_subscriptions o FORCE INDEX (PRIMARY)
    ON o.subscription_id = given.subscription_id
SET o.slow = given.slow,
    o.ramp = CASE
        WHEN given.step < 0 THEN 1
        WHEN given.step = 0 OR o.ramp = 0 THEN o.ramp
        WHEN o.ramp * :ramp_growth >= LEAST(COALESCE(s.concurrency_cap, :cap), :cap_max) THEN 0
        ELSE o.ramp * :ramp_growth END;

-- name: start_sagas :none
UPDATE webhook_delivery_sagas FORCE INDEX (PRIMARY)
SET status = 'InProgress', updated_at = UTC_TIMESTAMP(6)
WHERE bucket = :bucket AND id IN :saga_ids AND (id, next_attempt_at) IN (:given)
  AND status IN ('Pending', 'PendingRetry');

-- name: lock_in_progress :many
-- What another orchestrator holds, it is applying.
SELECT id, event_id, attempt_count, next_attempt_at, UTC_TIMESTAMP(6) AS now
FROM webhook_delivery_sagas FORCE INDEX (PRIMARY)
WHERE bucket = :bucket AND id IN :saga_ids AND status = 'InProgress'
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: job_results :many
-- With what its subscription says about retries.
SELECT j.saga_id, j.attempt_at, j.id, j.status, j.error_code, j.retry_after,
    s.max_attempts, s.base_delay_seconds, j.subscription_id, j.lane,
    TIMESTAMPDIFF(MICROSECOND, j.started_at, j.finished_at) / 1e6 AS seconds
FROM webhook_delivery_jobs j FORCE INDEX (uniq_job_saga_attempt)
LEFT JOIN subscriptions s ON s.id = j.subscription_id
WHERE j.bucket = :bucket AND j.saga_id IN :saga_ids AND j.status IN ('Completed', 'Failed');

-- name: complete_sagas :none
-- The same job result only once: the saga must still be InProgress with that attempt.
UPDATE webhook_delivery_sagas FORCE INDEX (PRIMARY)
SET status = 'Completed', attempt_count = attempt_count + 1, updated_at = UTC_TIMESTAMP(6)
WHERE bucket = :bucket AND id IN :saga_ids AND (id, next_attempt_at) IN (:given)
  AND status = 'InProgress';

-- name: fail_sagas :none
-- `now` is the moment from which the delays were reckoned.
UPDATE JSON_TABLE(:given, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', attempt_at DATETIME(6) PATH '$[1]', status VARCHAR(20) PATH '$[2]',
    error_code VARCHAR(100) PATH '$[3]', next_attempt_at DATETIME(6) PATH '$[4]'
)) AS given
STRAIGHT_JOIN webhook_delivery_sagas s FORCE INDEX (PRIMARY)
    ON s.id = given.id AND s.bucket = :bucket
SET s.status = given.status, s.attempt_count = s.attempt_count + 1,
    s.final_error_code = given.error_code, s.next_attempt_at = given.next_attempt_at,
    s.updated_at = :now
WHERE s.status = 'InProgress' AND s.next_attempt_at = given.attempt_at;

-- name: walk_in_progress :many
-- One page of the walk that makes a lost hint cost a moment and never a delivery: every saga in
-- progress in order of attempt, each probing its own job by key: how long it has been under way,
-- -1 if it has ended, nothing if it waits for a worker. What began in the last moment is
-- left to its hint: under load that is most of them. (Not what began in the future: clocks are set
-- back.)
SELECT s.next_attempt_at, s.id, s.subscription_id, (
    SELECT CASE WHEN j.status IN ('Completed', 'Failed') THEN -1
        WHEN j.status = 'Leased' THEN GREATEST(
            TIMESTAMPDIFF(MICROSECOND, j.started_at, UTC_TIMESTAMP(6)) / 1e6, 0) END
    FROM webhook_delivery_jobs j FORCE INDEX (uniq_job_saga_attempt)
    WHERE j.saga_id = s.id AND j.attempt_at = s.next_attempt_at AND j.bucket = :bucket
) AS seconds
FROM webhook_delivery_sagas s FORCE INDEX (idx_saga_status_retry)
WHERE s.bucket = :bucket AND s.status = 'InProgress' AND s.next_attempt_at >= :after_attempt_at
  AND (s.next_attempt_at > :after_attempt_at OR s.id > :after_id)
  AND s.updated_at NOT BETWEEN
      UTC_TIMESTAMP(6) - INTERVAL 300000 MICROSECOND AND UTC_TIMESTAMP(6)
ORDER BY s.next_attempt_at, s.id LIMIT :count;
