-- Observer: reads all but secrets, writes nothing. `check_…` statements return what breaks an
-- invariant: an id or two and a sentence's worth of facts. :since bounds the age of what is looked
-- at, :margin is how long two tables may be apart.

-- name: check_duplicate_deliveries :many
-- The unique key forbids it inside a bucket; across buckets only this sees it.
SELECT event_id, subscription_id,
    'requeued_from ' || requeued_from || ': ' || count(*) || ' deliveries'
FROM webhook_delivery_sagas
WHERE created_at >= :since
GROUP BY event_id, subscription_id, requeued_from
HAVING count(*) > 1
LIMIT :count;

-- name: check_missing_deliveries :many
-- A subscription that is active and verified has a saga for every event that was created inside one
-- of its intervals. One that has just become so may still be given what it is owed.
SELECT e.id, s.id, 'event of ' || e.created_at
FROM events e
JOIN subscriptions s ON s.tenant = e.tenant AND s.event_type = e.event_type
    AND s.active AND s.verified
    AND s.eligible_from <= surehook_now() - interval '1 second' * :margin::float8
    AND (s.eligible_from <= e.created_at OR EXISTS (
        SELECT 1 FROM subscription_eligibility h
        WHERE h.subscription_id = s.id AND h.pattern = s.event_type AND h.tenant = s.tenant
          AND h.eligible_from <= e.created_at AND h.eligible_until > e.created_at
          AND h.eligible_from >= s.eligible_first))
WHERE e.created_at >= :since
  AND e.created_at < surehook_now() - interval '1 second' * :margin::float8
  AND NOT EXISTS (
      SELECT 1 FROM webhook_delivery_sagas g
      WHERE g.event_id = e.id AND g.subscription_id = s.id AND g.requeued_from = 0
        AND g.bucket = e.bucket)
LIMIT :count;

-- name: owed_nothing :one
-- Who is not eligible now, and how many events wait until they are.
SELECT
    (SELECT count(*) FROM subscriptions WHERE NOT (active AND verified)),
    (SELECT count(*) FROM (SELECT 1 AS one FROM router_held LIMIT :most) AS held);

-- name: check_unowed_deliveries :many
-- A routed saga is of an event that was created inside one of the subscription's intervals. The end
-- of one is seen when it commits: until then the router goes on. Of the time before intervals were
-- kept nothing is known.
SELECT g.id, g.event_id,
    'subscription ' || g.subscription_id || ' was not eligible at ' || e.created_at
FROM webhook_delivery_sagas g
JOIN events e ON e.id = g.event_id AND e.bucket = g.bucket
JOIN subscriptions s ON s.id = g.subscription_id
WHERE g.created_at >= :since AND g.requeued_from = 0
  AND e.created_at >= (SELECT max(applied_at) FROM schema_migrations WHERE name = 'eligibility')
  AND (s.tenant = e.tenant AND s.event_type = e.event_type AND s.eligible_from <= e.created_at
      AND (s.eligible_until IS NULL
          OR s.eligible_until > e.created_at - interval '1 second' * :margin::float8)) IS NOT TRUE
  AND NOT EXISTS (
      SELECT 1 FROM subscription_eligibility h
      WHERE h.subscription_id = s.id AND h.pattern = e.event_type AND h.tenant = e.tenant
        AND h.eligible_from <= e.created_at
        AND h.eligible_until > e.created_at - interval '1 second' * :margin::float8)
LIMIT :count;

-- name: check_stray_deliveries :many
-- A saga belongs to an event and a subscription that exist and are, or were, of the same tenant.
SELECT g.id, g.event_id, 'subscription ' || g.subscription_id
FROM webhook_delivery_sagas g
LEFT JOIN events e ON e.id = g.event_id AND e.bucket = g.bucket
LEFT JOIN subscriptions s ON s.id = g.subscription_id
WHERE g.created_at >= :since AND (e.id IS NULL OR s.id IS NULL OR s.tenant <> e.tenant
    AND NOT EXISTS (
        SELECT 1 FROM subscription_eligibility h
        WHERE h.subscription_id = s.id AND h.tenant = e.tenant))
LIMIT :count;

-- name: check_two_active_attempts :many
SELECT saga_id, max(id), count(*) || ' active attempts'
FROM webhook_delivery_jobs
WHERE status IN ('Pending', 'Leased')
GROUP BY saga_id
HAVING count(*) > 1
LIMIT :count;

-- name: check_attempt_counts :many
-- A finished saga has applied each of its jobs once; one under way has at most one job more.
SELECT g.id, g.event_id, g.status || ' with attempt_count ' || g.attempt_count || ', '
    || count(j.id) FILTER (WHERE j.status IN ('Completed', 'Failed')) || ' finished attempts of '
    || count(j.id)
FROM webhook_delivery_sagas g
LEFT JOIN webhook_delivery_jobs j /*mysql FORCE INDEX (uniq_job_saga_attempt) */
    ON j.saga_id = g.id AND j.bucket = g.bucket
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
SELECT g.id, g.event_id, 'last attempt ' || COALESCE(g.last_status::text, 'missing')
FROM (
    SELECT s.id, s.event_id, (
        SELECT j.status FROM webhook_delivery_jobs j
        WHERE j.saga_id = s.id AND j.bucket = s.bucket
        ORDER BY j.attempt_at DESC LIMIT 1
    ) AS last_status
    FROM webhook_delivery_sagas s
    WHERE s.created_at >= :since AND s.status = 'Completed'
) AS g
WHERE g.last_status IS DISTINCT FROM 'Completed'
LIMIT :count;

-- name: check_active_attempt_of_finished_delivery :many
SELECT j.saga_id, j.id, 'a ' || j.status || ' attempt of a ' || g.status || ' delivery'
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

-- name: check_dead_letter_without_dead_delivery :many
SELECT d.id, d.saga_id, 'delivery ' || COALESCE(g.status::text, 'missing')
FROM dead_letters d
LEFT JOIN webhook_delivery_sagas g ON g.id = d.saga_id AND g.bucket = d.bucket
WHERE d.failed_at >= :since AND g.status IS DISTINCT FROM 'DeadLettered'
LIMIT :count;

-- name: check_requeued_twice :many
SELECT requeued_from, max(id), count(*) || ' deliveries'
FROM webhook_delivery_sagas
WHERE created_at >= :since AND requeued_from <> 0
GROUP BY requeued_from
HAVING count(*) > 1
LIMIT :count;

-- name: check_in_progress_without_attempt :many
SELECT g.id, g.event_id, 'attempt of ' || g.next_attempt_at
FROM webhook_delivery_sagas g
WHERE g.status = 'InProgress' AND NOT EXISTS (
    SELECT 1 FROM webhook_delivery_jobs j
    WHERE j.saga_id = g.id AND j.attempt_at = g.next_attempt_at AND j.bucket = g.bucket)
LIMIT :count;

-- name: now :one
SELECT surehook_now();

-- Lists. Newest first, from where the page before ended. A filter without an index of its own is
-- applied to a window of rows, so that no page costs more than the window: a page may be short, or
-- empty, and still have a next one. Each row carries how many rows the window had and its last key.

-- name: list_events :many EventWindow
WITH looked_at AS MATERIALIZED (
    SELECT {Event} FROM events
    WHERE (created_at, id) < (:before::timestamptz, :before_id::bigint)
      AND (:event_type::varchar IS NULL OR event_type = :event_type)
      AND (:external_id::varchar IS NULL OR (external_id = :external_id
           AND (:tenant::varchar IS NULL OR tenant = :tenant)))
      AND (:created_from::timestamptz IS NULL OR created_at >= :created_from)
      AND (:created_until::timestamptz IS NULL OR created_at < :created_until)
    ORDER BY created_at DESC, id DESC LIMIT :look
), page AS (
    SELECT {Event} FROM looked_at
    WHERE :tenant::varchar IS NULL OR tenant = :tenant
    ORDER BY created_at DESC, id DESC LIMIT :count
), ends AS (
    SELECT (SELECT count(*) FROM looked_at) AS looked, last.created_at, last.id
    FROM (SELECT 1) AS always
    LEFT JOIN (SELECT created_at, id FROM looked_at ORDER BY created_at, id LIMIT 1) AS last ON true
)
SELECT ends.looked, ends.created_at AS last_created_at, ends.id AS last_id, {Event page AS item}
FROM ends LEFT JOIN page ON true
ORDER BY page.created_at DESC, page.id DESC;

-- name: read_event :one EventWithDeliveries
SELECT {EventWithDeliveries} FROM events
WHERE id = :id AND (:tenant::varchar IS NULL OR tenant = :tenant);

-- name: list_deliveries :many DeliveryWindow
WITH looked_at AS MATERIALIZED (
    SELECT {Delivery}, bucket FROM webhook_delivery_sagas
    WHERE id < :before_id
      AND (:event_id::bigint IS NULL OR event_id = :event_id)
      AND (:status::saga_status IS NULL OR status = :status)
    ORDER BY id DESC LIMIT :look
), page AS (
    SELECT {Delivery g} FROM looked_at g
    JOIN subscriptions s ON s.id = g.subscription_id
    WHERE (:tenant::varchar IS NULL OR s.tenant = :tenant)
      AND (:subscription_id::bigint IS NULL OR g.subscription_id = :subscription_id)
      AND (:event_type::varchar IS NULL OR EXISTS (
          SELECT 1 FROM events e
          WHERE e.id = g.event_id AND e.bucket = g.bucket AND e.event_type = :event_type))
      AND (:created_from::timestamptz IS NULL OR g.created_at >= :created_from)
      AND (:created_until::timestamptz IS NULL OR g.created_at < :created_until)
    ORDER BY g.id DESC LIMIT :count
), ends AS (
    SELECT count(*) AS looked, min(id) AS id FROM looked_at
)
SELECT ends.looked, ends.id AS last_id, {Delivery page AS item}
FROM ends LEFT JOIN page ON true
ORDER BY page.id DESC;

-- name: read_delivery :one DeliveryWithAttempts
SELECT {Delivery g}, d.id AS dead_letter_id
FROM webhook_delivery_sagas g
JOIN subscriptions s ON s.id = g.subscription_id
LEFT JOIN dead_letters d ON d.saga_id = g.id AND d.bucket = g.bucket
WHERE g.id = :id AND (:tenant::varchar IS NULL OR s.tenant = :tenant);

-- name: read_attempts :many Attempt
SELECT {Attempt}
FROM webhook_delivery_jobs WHERE saga_id = :saga_id
ORDER BY attempt_at LIMIT :count;

-- name: list_dead_letters :many DeadLetterWindow
WITH looked_at AS MATERIALIZED (
    SELECT id, saga_id, event_id, subscription_id, final_error_code, failed_at, bucket
    FROM dead_letters WHERE id < :before_id
    ORDER BY id DESC LIMIT :look
), page AS (
    SELECT {DeadLetter d}
    FROM looked_at d
    JOIN subscriptions s ON s.id = d.subscription_id
    LEFT JOIN webhook_delivery_sagas n ON n.event_id = d.event_id
        AND n.subscription_id = d.subscription_id AND n.requeued_from = d.id
        AND n.bucket = d.bucket
    WHERE (:tenant::varchar IS NULL OR s.tenant = :tenant)
      AND (:subscription_id::bigint IS NULL OR d.subscription_id = :subscription_id)
      AND (:event_type::varchar IS NULL OR EXISTS (
          SELECT 1 FROM events e
          WHERE e.id = d.event_id AND e.bucket = d.bucket AND e.event_type = :event_type))
      AND (:error_code::varchar IS NULL OR d.final_error_code = :error_code)
      AND (:failed_from::timestamptz IS NULL OR d.failed_at >= :failed_from)
      AND (:failed_until::timestamptz IS NULL OR d.failed_at < :failed_until)
      AND (:requeued::boolean IS NULL OR (n.id IS NOT NULL) = :requeued)
    ORDER BY d.id DESC LIMIT :count
), ends AS (
    SELECT count(*) AS looked, min(id) AS id FROM looked_at
)
SELECT ends.looked, ends.id AS last_id, {DeadLetter page AS item}
FROM ends LEFT JOIN page ON true
ORDER BY page.id DESC;

-- name: read_dead_letter :one DeadLetterWithPayload
SELECT {DeadLetterWithPayload d}
FROM dead_letters d
JOIN subscriptions s ON s.id = d.subscription_id
LEFT JOIN webhook_delivery_sagas n ON n.event_id = d.event_id
    AND n.subscription_id = d.subscription_id AND n.requeued_from = d.id AND n.bucket = d.bucket
WHERE d.id = :id AND (:tenant::varchar IS NULL OR s.tenant = :tenant);

-- name: list_subscriptions :many Subscription
-- A subscription with its newest verification.
SELECT {Subscription s}, {Verification v AS verification}
FROM subscriptions s
LEFT JOIN subscription_verifications v ON v.id = (
    SELECT max(x.id) FROM subscription_verifications x WHERE x.subscription_id = s.id
)
WHERE s.id < :before_id
  AND (:id::bigint IS NULL OR s.id = :id)
  AND (:tenant::varchar IS NULL OR s.tenant = :tenant)
  AND (:event_type::varchar IS NULL OR s.event_type = :event_type)
  AND (:active::boolean IS NULL OR s.active = :active)
  AND (:verified::boolean IS NULL OR s.verified = :verified)
ORDER BY s.id DESC LIMIT :count;

-- name: last_gap :one
-- Since when, and until when, a subscription last was not eligible; it may still not be (NULL).
SELECT s.tenant, s.event_type,
    CASE WHEN s.active AND s.verified THEN (
        SELECT h.eligible_until FROM subscription_eligibility h
        WHERE h.subscription_id = s.id AND h.pattern = s.event_type AND h.tenant = s.tenant
          AND h.eligible_from >= s.eligible_first
        ORDER BY h.eligible_from DESC LIMIT 1
    ) ELSE s.eligible_until END AS since,
    CASE WHEN s.active AND s.verified THEN s.eligible_from END AS until,
    surehook_now() AS now
FROM subscriptions s
WHERE s.id = :id;

-- name: missed_events :one
-- Events of a tenant and type in a span of time. No more than :look of all tenants' are looked at,
-- from its beginning.
SELECT count(*), count(*) FILTER (WHERE tenant = :tenant),
    min(created_at) FILTER (WHERE tenant = :tenant),
    max(created_at) FILTER (WHERE tenant = :tenant)
FROM (
    SELECT tenant, created_at FROM events
    WHERE event_type = :event_type AND created_at >= :since AND created_at < :until
    ORDER BY created_at LIMIT :look
) AS seen;

-- name: list_api_keys :many Key
SELECT {Key}
FROM api_keys
WHERE id < :before_id AND (:tenant::varchar IS NULL OR tenant = :tenant)
ORDER BY id DESC LIMIT :count;

-- name: backlog :many
-- What waits at each stage and for how long. Only open rows are in these indexes, and no more than
-- :most of them are counted.
SELECT 'deliveries' AS stage, 'Pending' AS state, count(*) AS waiting,
    EXTRACT(epoch FROM surehook_now() - min(next_attempt_at)) AS oldest_seconds
FROM (
    SELECT next_attempt_at FROM webhook_delivery_sagas
    WHERE status = 'Pending' ORDER BY next_attempt_at LIMIT :most
) AS pending
UNION ALL
SELECT 'deliveries', 'InProgress', count(*),
    EXTRACT(epoch FROM surehook_now() - min(next_attempt_at))
FROM (
    SELECT next_attempt_at FROM webhook_delivery_sagas
    WHERE status = 'InProgress' ORDER BY next_attempt_at LIMIT :most
) AS in_progress
UNION ALL
SELECT 'deliveries', 'PendingRetry', count(*),
    EXTRACT(epoch FROM surehook_now() - min(next_attempt_at))
FROM (
    SELECT next_attempt_at FROM webhook_delivery_sagas
    WHERE status = 'PendingRetry' ORDER BY next_attempt_at LIMIT :most
) AS pending_retry
UNION ALL
SELECT 'attempts', 'Pending', count(*), EXTRACT(epoch FROM surehook_now() - min(created_at))
FROM (
    SELECT created_at FROM webhook_delivery_jobs WHERE status = 'Pending' LIMIT :most
) AS waiting_jobs
UNION ALL
SELECT 'attempts', 'Leased', count(*), EXTRACT(epoch FROM surehook_now() - min(created_at))
FROM (
    SELECT created_at FROM webhook_delivery_jobs WHERE status = 'Leased' LIMIT :most
) AS leased_jobs
UNION ALL
SELECT 'dead_letters', 'kept', count(*), EXTRACT(epoch FROM surehook_now() - min(failed_at))
FROM (SELECT failed_at FROM dead_letters LIMIT :most) AS kept;

-- name: open_dead_letters :one
-- Dead letters that were not requeued, among the newest :look.
SELECT 'dead_letters' AS stage, 'open' AS state, count(*) AS waiting,
    EXTRACT(epoch FROM surehook_now() - min(d.failed_at)) AS oldest_seconds
FROM (
    SELECT id, event_id, subscription_id, failed_at, bucket FROM dead_letters
    ORDER BY id DESC LIMIT :look
) AS d
WHERE NOT EXISTS (
    SELECT 1 FROM webhook_delivery_sagas n
    WHERE n.event_id = d.event_id AND n.subscription_id = d.subscription_id
      AND n.requeued_from = d.id AND n.bucket = d.bucket);

-- name: database_bytes :one
SELECT pg_database_size(current_database()) AS bytes;

-- name: unrouted :one
-- The first stage of the backlog: what the router has not read. No more than :most are counted.
SELECT 'events' AS stage, 'unrouted' AS state, count(*) AS waiting,
    EXTRACT(epoch FROM surehook_now() - min(created_at)) AS oldest_seconds
FROM (
    SELECT e.created_at FROM router_cursor c
    JOIN events e ON e.bucket = c.bucket AND e.xid >= pg_snapshot_xmax(c.snapshot)
    LIMIT :most
) AS unrouted;

-- name: system_figures :one
-- What some process last counted, and how long ago.
SELECT figures, EXTRACT(epoch FROM surehook_now() - counted_at) AS age_seconds
FROM system_figures WHERE name = 'backlog';

-- name: processes :many
-- Who runs, and how long ago each was heard of, by the database's clock.
SELECT process_id, component, host, pid, version, address, since, heartbeat_at, step_at, trouble,
    EXTRACT(epoch FROM surehook_now() - heartbeat_at)::float8 AS silent_seconds
FROM processes ORDER BY since, process_id, component LIMIT :most;
