-- Orchestrator: UPDATE sagas, INSERT jobs. No statement writes both.
--
-- A row that is found by its key must be found by nothing else: (predicate) IS TRUE on its other
-- columns, and a bucket that comes with the key from behind OFFSET 0, keep the planner from driving
-- the statement from the table's side, where each batch would cost as much as the backlog. What is
-- found by idx_saga_waiting or idx_job_open says so in the words of that index, which no other has.

-- name: due_subscriptions :many
-- Whose sagas are due, looked at from the oldest: first attempts and retries each get their view,
-- so that neither hides the other.
SELECT due.subscription_id, s.tenant, due.count,
    s.rate_limit_per_second IS NOT NULL AS limited, o.slow, o.ramp
FROM (
    SELECT subscription_id, count(*) AS count
    FROM (
        (SELECT subscription_id FROM webhook_delivery_sagas
         WHERE bucket = :bucket AND status = 'Pending' AND next_attempt_at <= surehook_now()
         ORDER BY next_attempt_at LIMIT :count)
        UNION ALL
        (SELECT subscription_id FROM webhook_delivery_sagas
         WHERE bucket = :bucket AND status = 'PendingRetry' AND next_attempt_at <= surehook_now()
         ORDER BY next_attempt_at LIMIT :count)
    ) AS first
    GROUP BY subscription_id
) AS due
JOIN subscriptions s ON s.id = due.subscription_id
LEFT JOIN orchestrator_subscriptions o ON o.subscription_id = due.subscription_id;

-- name: newest_subscriptions :many
-- The same from the other end: a newcomer is seen at once, however long the queue is of
-- those that have to wait.
SELECT due.subscription_id, s.tenant, due.count,
    s.rate_limit_per_second IS NOT NULL AS limited, o.slow, o.ramp
FROM (
    SELECT subscription_id, count(*) AS count
    FROM (
        (SELECT subscription_id FROM webhook_delivery_sagas
         WHERE bucket = :bucket AND status = 'Pending' AND next_attempt_at <= surehook_now()
         ORDER BY next_attempt_at DESC LIMIT :count)
        UNION ALL
        (SELECT subscription_id FROM webhook_delivery_sagas
         WHERE bucket = :bucket AND status = 'PendingRetry' AND next_attempt_at <= surehook_now()
         ORDER BY next_attempt_at DESC LIMIT :count)
    ) AS last
    GROUP BY subscription_id
) AS due
JOIN subscriptions s ON s.id = due.subscription_id
LEFT JOIN orchestrator_subscriptions o ON o.subscription_id = due.subscription_id;

-- name: rotate_subscriptions :many
-- The next subscriptions, by id, that have anything waiting: the way around those whose backlog
-- fills the view above while they are at their cap. One index probe each.
WITH RECURSIVE waiting AS (
    (SELECT subscription_id FROM webhook_delivery_sagas
     WHERE bucket = :bucket AND (status IN ('PendingRetry', 'Pending')) IS TRUE
       AND subscription_id > :after_id
     ORDER BY subscription_id LIMIT 1)
    UNION ALL
    SELECT next.subscription_id
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT subscription_id FROM webhook_delivery_sagas
        WHERE bucket = :bucket AND (status IN ('PendingRetry', 'Pending')) IS TRUE
          AND subscription_id > waiting.subscription_id
        ORDER BY subscription_id LIMIT 1
    ) AS next
)
SELECT waiting.subscription_id, s.tenant, 0::bigint AS due,
    s.rate_limit_per_second IS NOT NULL AS limited, o.slow, o.ramp
FROM (SELECT subscription_id FROM waiting LIMIT :count) AS waiting
JOIN subscriptions s ON s.id = waiting.subscription_id
LEFT JOIN orchestrator_subscriptions o ON o.subscription_id = waiting.subscription_id;

-- name: next_due :one
-- When something becomes due, so that an idle orchestrator sleeps until then.
SELECT EXTRACT(EPOCH FROM min(first.next_attempt_at) - surehook_now())::float8 AS seconds
FROM (
    (SELECT next_attempt_at FROM webhook_delivery_sagas
     WHERE bucket = :bucket AND status = 'Pending' ORDER BY next_attempt_at LIMIT 1)
    UNION ALL
    (SELECT next_attempt_at FROM webhook_delivery_sagas
     WHERE bucket = :bucket AND status = 'PendingRetry' ORDER BY next_attempt_at LIMIT 1)
) AS first;

-- name: count_open_jobs :many
-- Of each tenant in each lane; those that have been under way for long as 5 (express) and 6 (bulk,
-- unproven): a worker has given their slots to others. What was set aside takes no place.
SELECT s.tenant, open.lane, sum(open.count)::bigint
FROM (
    SELECT subscription_id,
        CASE WHEN lane < 3
                AND started_at <= surehook_now() - interval '1 second' * :lasting_seconds::float8
            THEN CASE lane WHEN 0 THEN 5 ELSE 6 END ELSE lane END AS lane,
        count(*) AS count
    FROM (
        SELECT subscription_id, lane, started_at FROM webhook_delivery_jobs
        WHERE bucket = :bucket AND status IN ('Pending', 'Leased') AND lane < 4
        LIMIT :count
    ) AS job
    GROUP BY 1, 2
) AS open
JOIN subscriptions s ON s.id = open.subscription_id
GROUP BY 1, 2;

-- name: ensure_subscriptions :none
INSERT INTO orchestrator_subscriptions (subscription_id, ramp)
SELECT id, :ramp FROM unnest(:subscription_ids::bigint[]) AS given (id) ORDER BY id
ON CONFLICT DO NOTHING;

-- name: lock_subscriptions :many
-- Nobody else counts or fills these until we commit; what another orchestrator holds is its own.
SELECT o.subscription_id
FROM unnest(:subscription_ids::bigint[]) AS given (id)
JOIN orchestrator_subscriptions o ON o.subscription_id = given.id
FOR UPDATE OF o SKIP LOCKED;

-- name: create_jobs :many
-- A second statement after the locks, so that its snapshot sees every job that the locks' former
-- holders committed: the cap is exact. Per subscription first attempts and retries take turns.
-- Behind OFFSET 0 the open jobs are counted once, not once per use of `places`.
-- In order of saga, so that subscriptions are mixed: it is soon known which of them hang.
-- A clock that was set back must not hold up a limited subscription until it has caught up: what
-- was refilled in the future was refilled long ago (a minute is more than orchestrators differ by).
-- attempt_at is copied, which makes the unique key refuse a second job for the same attempt; such
-- a saga comes back without a job_id (and then so does every other one, a second time: telling them
-- apart here would cost more) and is started all the same. One whose job of another attempt is
-- still active gets none, and waits for that to end: no protocol leads there, but a hand may.
WITH picked AS MATERIALIZED (
    SELECT take.id, take.next_attempt_at, take.event_id, room.subscription_id, room.lane
    FROM (
        SELECT given.subscription_id, given.lane, LEAST(
            given.share,
            LEAST(COALESCE(s.concurrency_cap, :cap), :cap_max, NULLIF(given.ramp, 0)) - (
                SELECT count(*) FROM webhook_delivery_jobs j
                WHERE j.subscription_id = given.subscription_id
                  AND (j.status IN ('Leased', 'Pending')) IS TRUE),
            CASE WHEN rate.limit IS NOT NULL THEN floor(LEAST(
                GREATEST(rate.limit, 1), o.rate_tokens + rate.limit
                * EXTRACT(EPOCH FROM surehook_now() - CASE
                    WHEN o.rate_refilled_at > surehook_now() + interval '1 minute' THEN 'epoch'
                    ELSE o.rate_refilled_at END)::float8))::bigint END
            ) AS places
        FROM unnest(:subscription_ids::bigint[], :shares::bigint[], :lanes::smallint[],
                    :ramps::integer[])
            AS given (subscription_id, share, lane, ramp)
        JOIN subscriptions s ON s.id = given.subscription_id
        CROSS JOIN LATERAL (
            SELECT LEAST(s.rate_limit_per_second, :rate_max::float8) AS limit
        ) AS rate
        JOIN orchestrator_subscriptions o ON o.subscription_id = given.subscription_id
        OFFSET 0
    ) AS room
    CROSS JOIN LATERAL (
        SELECT id, next_attempt_at, event_id
        FROM (
            (SELECT id, next_attempt_at, event_id,
                 row_number() OVER (ORDER BY next_attempt_at) AS turn
             FROM webhook_delivery_sagas
             WHERE bucket = :bucket AND subscription_id = room.subscription_id
               AND (status IN ('PendingRetry', 'Pending')) IS TRUE
               AND (status = 'PendingRetry') IS FALSE AND next_attempt_at <= surehook_now()
             ORDER BY next_attempt_at LIMIT GREATEST(room.places, 0))
            UNION ALL
            (SELECT id, next_attempt_at, event_id,
                 row_number() OVER (ORDER BY next_attempt_at) AS turn
             FROM webhook_delivery_sagas
             WHERE bucket = :bucket AND subscription_id = room.subscription_id
               AND (status IN ('PendingRetry', 'Pending')) IS TRUE
               AND (status = 'PendingRetry') IS TRUE AND next_attempt_at <= surehook_now()
             ORDER BY next_attempt_at LIMIT GREATEST(room.places, 0))
        ) AS waiting
        ORDER BY turn LIMIT GREATEST(room.places, 0)
    ) AS take
    WHERE room.places > 0
), created AS (
    INSERT INTO webhook_delivery_jobs
        (saga_id, attempt_at, event_id, subscription_id, bucket, lane)
    SELECT id, next_attempt_at, event_id, subscription_id, :bucket, lane FROM picked ORDER BY id
    ON CONFLICT DO NOTHING
    RETURNING saga_id, attempt_at, event_id, subscription_id, id
)
SELECT saga_id, attempt_at, event_id, subscription_id, id AS job_id FROM created
UNION ALL
SELECT id, next_attempt_at, event_id, subscription_id, NULL FROM picked
WHERE (SELECT count(*) FROM created) < (SELECT count(*) FROM picked)
  AND EXISTS (
      SELECT 1 FROM webhook_delivery_jobs j
      WHERE j.saga_id = picked.id AND j.attempt_at = picked.next_attempt_at AND j.bucket = :bucket
      OFFSET 0);

-- name: spend_rate :none
-- Token bucket: refilled at the subscription's rate, one token per created job.
UPDATE orchestrator_subscriptions o
SET rate_tokens = LEAST(
        GREATEST(rate.limit, 1), o.rate_tokens + rate.limit
        * EXTRACT(EPOCH FROM surehook_now() - CASE
            WHEN o.rate_refilled_at > surehook_now() + interval '1 minute' THEN 'epoch'
            ELSE o.rate_refilled_at END)::float8) - given.spent,
    rate_refilled_at = surehook_now()
FROM unnest(:subscription_ids::bigint[], :spent::bigint[]) AS given (subscription_id, spent)
JOIN subscriptions s ON s.id = given.subscription_id
CROSS JOIN LATERAL (
    SELECT LEAST(s.rate_limit_per_second, :rate_max::float8) AS limit
) AS rate
WHERE o.subscription_id = given.subscription_id AND rate.limit IS NOT NULL;

-- name: set_paces :none
-- How a subscription's endpoint did: `step` is 1 if it answered (its ramp grows until it is no
-- limit any more), -1 if it hung (one at a time, for now), 0 if nothing has ended.
UPDATE orchestrator_subscriptions o
SET slow = given.slow,
    ramp = CASE
        WHEN given.step < 0 THEN 1
        WHEN given.step = 0 OR o.ramp = 0 THEN o.ramp
        WHEN o.ramp * :ramp_growth::integer
            >= LEAST(COALESCE(s.concurrency_cap, :cap), :cap_max) THEN 0
        ELSE o.ramp * :ramp_growth::integer END
FROM unnest(:subscription_ids::bigint[], :slows::boolean[], :steps::smallint[])
    AS given (subscription_id, slow, step)
JOIN subscriptions s ON s.id = given.subscription_id
WHERE o.subscription_id = given.subscription_id
  AND (o.slow <> given.slow OR given.step < 0 AND o.ramp <> 1 OR given.step > 0 AND o.ramp <> 0);

-- name: start_sagas :none
UPDATE webhook_delivery_sagas s
SET status = 'InProgress', updated_at = surehook_now()
FROM (
    SELECT id, attempt_at, :bucket::smallint AS bucket
    FROM unnest(:saga_ids::bigint[], :attempts_at::timestamptz[]) AS given (id, attempt_at)
    OFFSET 0
) AS given
WHERE s.id = given.id AND s.bucket = given.bucket
  AND (s.next_attempt_at = given.attempt_at) IS TRUE
  AND (s.status IN ('Pending', 'PendingRetry')) IS TRUE;

-- name: apply_results :many
-- The same job result only once: the saga must still be InProgress with that attempt. In bulk what
-- states.decide() decides for one; tests compare the two row by row.
UPDATE webhook_delivery_sagas s
SET status = CASE
        WHEN j.status = 'Completed' THEN 'Completed'::saga_status
        WHEN j.error_code = ANY (:permanent::varchar[])
            OR s.attempt_count + 1 >= COALESCE(sub.max_attempts, :max_attempts)
            THEN 'DeadLettered'::saga_status
        ELSE 'PendingRetry'::saga_status
    END,
    attempt_count = s.attempt_count + 1,
    final_error_code = CASE
        WHEN j.status = 'Completed' THEN s.final_error_code ELSE j.error_code END,
    next_attempt_at = CASE
        WHEN j.status = 'Completed' OR j.error_code = ANY (:permanent::varchar[])
            OR s.attempt_count + 1 >= COALESCE(sub.max_attempts, :max_attempts)
            THEN s.next_attempt_at
        ELSE GREATEST(
            s.next_attempt_at + interval '1 microsecond',
            surehook_now() + interval '1 second' * GREATEST(
                LEAST(COALESCE(sub.base_delay_seconds, :base_delay_seconds)
                      * 2.0::float8 ^ LEAST(s.attempt_count, :exponent_max),
                      :max_delay_seconds),
                LEAST(COALESCE(j.retry_after, 0), :max_delay_seconds)))
    END,
    updated_at = surehook_now()
FROM (
    SELECT id, :bucket::smallint AS bucket FROM unnest(:saga_ids::bigint[]) AS given (id) OFFSET 0
) AS given
JOIN webhook_delivery_jobs j ON j.saga_id = given.id AND j.bucket = given.bucket
LEFT JOIN subscriptions sub ON sub.id = j.subscription_id
WHERE s.id = given.id AND s.bucket = given.bucket
  AND j.attempt_at = s.next_attempt_at
  AND (s.status = 'InProgress') IS TRUE
  AND (j.status IN ('Completed', 'Failed')) IS TRUE
RETURNING s.id, s.event_id, j.id, s.status, s.attempt_count, j.error_code, s.next_attempt_at,
    s.subscription_id, j.lane, j.finished_at - j.started_at >= :slow_after::interval AS slow;

-- name: walk_in_progress :many
-- One page of the walk that makes a lost hint cost a moment and never a delivery: every saga in
-- progress in order of attempt, each probing its own job by key: how long it has been under way,
-- -1 if it has ended, nothing if it waits for a worker. What began in the last moment is
-- left to its hint: under load that is most of them. (Not what began in the future: clocks are set
-- back.)
SELECT s.next_attempt_at, s.id, s.subscription_id, (
    SELECT CASE WHEN j.status IN ('Completed', 'Failed') THEN -1
        WHEN j.status = 'Leased' THEN
            GREATEST(EXTRACT(EPOCH FROM surehook_now() - j.started_at), 0) END::float8
    FROM webhook_delivery_jobs j
    WHERE j.saga_id = s.id AND j.attempt_at = s.next_attempt_at AND j.bucket = :bucket
) AS seconds
FROM webhook_delivery_sagas s
WHERE s.bucket = :bucket AND s.status = 'InProgress'
  AND (s.next_attempt_at, s.id) > (:after_attempt_at, :after_id)
  AND (s.updated_at BETWEEN surehook_now() - interval '300 milliseconds' AND surehook_now())
      IS FALSE
ORDER BY s.next_attempt_at, s.id LIMIT :count;
