-- Written by `make generate` from store/postgres/observer.sql; do not edit.

-- name: check_duplicate_deliveries :many
SELECT
  event_id,
  subscription_id,
  CONCAT('requeued_from ', requeued_from, ': ', COUNT(*), ' deliveries')
FROM webhook_delivery_sagas
WHERE
  created_at >= :since
GROUP BY
  event_id,
  subscription_id,
  requeued_from
HAVING
  COUNT(*) > 1
LIMIT :count;

-- name: check_missing_deliveries :many
SELECT
  e.id,
  s.id,
  CONCAT('event of ', e.created_at)
FROM events AS e
JOIN subscriptions AS s
  ON s.tenant = e.tenant
  AND s.event_type = e.event_type
  AND s.active
  AND s.verified
  AND s.eligible_from <= UTC_TIMESTAMP(6) - INTERVAL :margin SECOND
  AND (
    s.eligible_from <= e.created_at
    OR EXISTS(
      SELECT
        1
      FROM subscription_eligibility AS h
      WHERE
        h.subscription_id = s.id
        AND h.pattern = s.event_type
        AND h.tenant = s.tenant
        AND h.eligible_from <= e.created_at
        AND h.eligible_until > e.created_at
        AND h.eligible_from >= s.eligible_first
    )
  )
WHERE
  e.created_at >= :since
  AND e.created_at < UTC_TIMESTAMP(6) - INTERVAL :margin SECOND
  AND NOT EXISTS(
    SELECT
      1
    FROM webhook_delivery_sagas AS g
    WHERE
      g.event_id = e.id
      AND g.subscription_id = s.id
      AND g.requeued_from = 0
      AND g.bucket = e.bucket
  )
LIMIT :count;

-- name: owed_nothing :one
SELECT
  (
    SELECT
      COUNT(*)
    FROM subscriptions
    WHERE
      NOT (
        active AND verified
      )
  ),
  (
    SELECT
      COUNT(*)
    FROM (
      SELECT
        1 AS one
      FROM router_held
      LIMIT :most
    ) AS held
  );

-- name: check_unowed_deliveries :many
SELECT
  g.id,
  g.event_id,
  CONCAT('subscription ', g.subscription_id, ' was not eligible at ', e.created_at)
FROM webhook_delivery_sagas AS g
JOIN events AS e
  ON e.id = g.event_id AND e.bucket = g.bucket
JOIN subscriptions AS s
  ON s.id = g.subscription_id
WHERE
  g.created_at >= :since
  AND g.requeued_from = 0
  AND e.created_at >= (
    SELECT
      MAX(applied_at)
    FROM schema_migrations
    WHERE
      name = 'eligibility'
  )
  AND NOT (
    s.tenant = e.tenant
    AND s.event_type = e.event_type
    AND s.eligible_from <= e.created_at
    AND (
      s.eligible_until IS NULL
      OR s.eligible_until > e.created_at - INTERVAL :margin SECOND
    )
  ) IS TRUE
  AND NOT EXISTS(
    SELECT
      1
    FROM subscription_eligibility AS h
    WHERE
      h.subscription_id = s.id
      AND h.pattern = e.event_type
      AND h.tenant = e.tenant
      AND h.eligible_from <= e.created_at
      AND h.eligible_until > e.created_at - INTERVAL :margin SECOND
  )
LIMIT :count;

-- name: check_stray_deliveries :many
SELECT
  g.id,
  g.event_id,
  CONCAT('subscription ', g.subscription_id)
FROM webhook_delivery_sagas AS g
LEFT JOIN events AS e
  ON e.id = g.event_id AND e.bucket = g.bucket
LEFT JOIN subscriptions AS s
  ON s.id = g.subscription_id
WHERE
  g.created_at >= :since
  AND (
    e.id IS NULL
    OR s.id IS NULL
    OR s.tenant <> e.tenant
    AND NOT EXISTS(
      SELECT
        1
      FROM subscription_eligibility AS h
      WHERE
        h.subscription_id = s.id AND h.tenant = e.tenant
    )
  )
LIMIT :count;

-- name: check_two_active_attempts :many
SELECT
  saga_id,
  MAX(id),
  CONCAT(COUNT(*), ' active attempts')
FROM webhook_delivery_jobs
WHERE
  status IN ('Pending', 'Leased')
GROUP BY
  saga_id
HAVING
  COUNT(*) > 1
LIMIT :count;

-- name: check_attempt_counts :many
SELECT
  g.id,
  g.event_id,
  CONCAT(
    g.status,
    ' with attempt_count ',
    g.attempt_count,
    ', ',
    COUNT(CASE WHEN j.status IN ('Completed', 'Failed') THEN j.id END),
    ' finished attempts of ',
    COUNT(j.id)
  )
FROM webhook_delivery_sagas AS g
LEFT JOIN webhook_delivery_jobs AS j FORCE INDEX (uniq_job_saga_attempt)
  ON j.saga_id = g.id AND j.bucket = g.bucket
WHERE
  g.created_at >= :since
  AND g.updated_at < UTC_TIMESTAMP(6) - INTERVAL :margin SECOND
GROUP BY
  g.id,
  g.event_id,
  g.status,
  g.attempt_count
HAVING
  CASE
    WHEN g.status IN ('Completed', 'DeadLettered')
    THEN COUNT(CASE WHEN j.status IN ('Completed', 'Failed') THEN j.id END) <> g.attempt_count
    OR COUNT(j.id) <> g.attempt_count
    ELSE COUNT(j.id) > g.attempt_count + 1
  END
LIMIT :count;

-- name: check_completed_without_delivery :many
SELECT
  g.id,
  g.event_id,
  CONCAT('last attempt ', COALESCE(g.last_status, 'missing'))
FROM (
  SELECT
    s.id,
    s.event_id,
    (
      SELECT
        j.status
      FROM webhook_delivery_jobs AS j
      WHERE
        j.saga_id = s.id AND j.bucket = s.bucket
      ORDER BY
        j.attempt_at DESC
      LIMIT 1
    ) AS last_status
  FROM webhook_delivery_sagas AS s
  WHERE
    s.created_at >= :since AND s.status = 'Completed'
) AS g
WHERE
  NOT g.last_status <=> 'Completed'
LIMIT :count;

-- name: check_active_attempt_of_finished_delivery :many
SELECT
  j.saga_id,
  j.id,
  CONCAT('a ', j.status, ' attempt of a ', g.status, ' delivery')
FROM webhook_delivery_jobs AS j
JOIN webhook_delivery_sagas AS g
  ON g.id = j.saga_id AND g.bucket = j.bucket
WHERE
  j.status IN ('Pending', 'Leased') AND g.status IN ('Completed', 'DeadLettered')
LIMIT :count;

-- name: check_dead_letter_missing :many
SELECT
  g.id,
  g.event_id,
  CONCAT('died ', g.updated_at)
FROM webhook_delivery_sagas AS g
WHERE
  g.status = 'DeadLettered'
  AND g.updated_at >= :since
  AND g.updated_at < UTC_TIMESTAMP(6) - INTERVAL :margin SECOND
  AND NOT EXISTS(
    SELECT
      1
    FROM dead_letters AS d
    WHERE
      d.saga_id = g.id AND d.bucket = g.bucket
  )
LIMIT :count;

-- name: check_dead_letter_without_dead_delivery :many
SELECT
  d.id,
  d.saga_id,
  CONCAT('delivery ', COALESCE(g.status, 'missing'))
FROM dead_letters AS d
LEFT JOIN webhook_delivery_sagas AS g
  ON g.id = d.saga_id AND g.bucket = d.bucket
WHERE
  d.failed_at >= :since AND NOT g.status <=> 'DeadLettered'
LIMIT :count;

-- name: check_requeued_twice :many
SELECT
  requeued_from,
  MAX(id),
  CONCAT(COUNT(*), ' deliveries')
FROM webhook_delivery_sagas
WHERE
  created_at >= :since AND requeued_from <> 0
GROUP BY
  requeued_from
HAVING
  COUNT(*) > 1
LIMIT :count;

-- name: check_in_progress_without_attempt :many
SELECT
  g.id,
  g.event_id,
  CONCAT('attempt of ', g.next_attempt_at)
FROM webhook_delivery_sagas AS g
WHERE
  g.status = 'InProgress'
  AND NOT EXISTS(
    SELECT
      1
    FROM webhook_delivery_jobs AS j
    WHERE
      j.saga_id = g.id AND j.attempt_at = g.next_attempt_at AND j.bucket = g.bucket
  )
LIMIT :count;

-- name: now :one
SELECT
  UTC_TIMESTAMP(6);

-- name: list_events :many EventWindow
WITH looked_at AS (
  SELECT
    {Event}
  FROM events
  WHERE
    created_at <= :before
    AND (
      created_at < :before OR id < :before_id
    )
    AND (
      :event_type IS NULL OR event_type = :event_type
    )
    AND (
      :external_id IS NULL
      OR (
        external_id = :external_id AND (
          :tenant IS NULL OR tenant = :tenant
        )
      )
    )
    AND (
      :created_from IS NULL OR created_at >= :created_from
    )
    AND (
      :created_until IS NULL OR created_at < :created_until
    )
  ORDER BY
    created_at DESC,
    id DESC
  LIMIT :look
), page AS (
  SELECT
    {Event}
  FROM looked_at
  WHERE
    :tenant IS NULL OR tenant = :tenant
  ORDER BY
    created_at DESC,
    id DESC
  LIMIT :count
), ends AS (
  SELECT
    (
      SELECT
        COUNT(*)
      FROM looked_at
    ) AS looked,
    last.created_at,
    last.id
  FROM (
    SELECT
      1
  ) AS always
  LEFT JOIN (
    SELECT
      created_at,
      id
    FROM looked_at
    ORDER BY
      created_at,
      id
    LIMIT 1
  ) AS last
    ON TRUE
)
SELECT
  ends.looked,
  ends.created_at AS last_created_at,
  ends.id AS last_id,
  {Event page AS item}
FROM ends
LEFT JOIN page
  ON TRUE
ORDER BY
  page.created_at DESC,
  page.id DESC;

-- name: read_event :one EventWithDeliveries
SELECT
  {EventWithDeliveries}
FROM events
WHERE
  id = :id AND (
    :tenant IS NULL OR tenant = :tenant
  );

-- name: list_deliveries :many DeliveryWindow
WITH looked_at AS (
  SELECT
    {Delivery},
    bucket
  FROM webhook_delivery_sagas
  WHERE
    id < :before_id
    AND (
      :event_id IS NULL OR event_id = :event_id
    )
    AND (
      :status IS NULL OR status = :status
    )
  ORDER BY
    id DESC
  LIMIT :look
), page AS (
  SELECT
    {Delivery g}
  FROM looked_at AS g
  JOIN subscriptions AS s
    ON s.id = g.subscription_id
  WHERE
    (
      :tenant IS NULL OR s.tenant = :tenant
    )
    AND (
      :subscription_id IS NULL OR g.subscription_id = :subscription_id
    )
    AND (
      :event_type IS NULL
      OR EXISTS(
        SELECT
          1
        FROM events AS e
        WHERE
          e.id = g.event_id AND e.bucket = g.bucket AND e.event_type = :event_type
      )
    )
    AND (
      :created_from IS NULL OR g.created_at >= :created_from
    )
    AND (
      :created_until IS NULL OR g.created_at < :created_until
    )
  ORDER BY
    g.id DESC
  LIMIT :count
), ends AS (
  SELECT
    COUNT(*) AS looked,
    MIN(id) AS id
  FROM looked_at
)
SELECT
  ends.looked,
  ends.id AS last_id,
  {Delivery page AS item}
FROM ends
LEFT JOIN page
  ON TRUE
ORDER BY
  page.id DESC;

-- name: read_delivery :one DeliveryWithAttempts
SELECT
  {Delivery g},
  d.id AS dead_letter_id
FROM webhook_delivery_sagas AS g
JOIN subscriptions AS s
  ON s.id = g.subscription_id
LEFT JOIN dead_letters AS d
  ON d.saga_id = g.id AND d.bucket = g.bucket
WHERE
  g.id = :id AND (
    :tenant IS NULL OR s.tenant = :tenant
  );

-- name: read_attempts :many Attempt
SELECT
  {Attempt}
FROM webhook_delivery_jobs
WHERE
  saga_id = :saga_id
ORDER BY
  attempt_at
LIMIT :count;

-- name: list_dead_letters :many DeadLetterWindow
WITH looked_at AS (
  SELECT
    id,
    saga_id,
    event_id,
    subscription_id,
    final_error_code,
    failed_at,
    bucket
  FROM dead_letters
  WHERE
    id < :before_id
  ORDER BY
    id DESC
  LIMIT :look
), page AS (
  SELECT
    {DeadLetter d}
  FROM looked_at AS d
  JOIN subscriptions AS s
    ON s.id = d.subscription_id
  LEFT JOIN webhook_delivery_sagas AS n
    ON n.event_id = d.event_id
    AND n.subscription_id = d.subscription_id
    AND n.requeued_from = d.id
    AND n.bucket = d.bucket
  WHERE
    (
      :tenant IS NULL OR s.tenant = :tenant
    )
    AND (
      :subscription_id IS NULL OR d.subscription_id = :subscription_id
    )
    AND (
      :event_type IS NULL
      OR EXISTS(
        SELECT
          1
        FROM events AS e
        WHERE
          e.id = d.event_id AND e.bucket = d.bucket AND e.event_type = :event_type
      )
    )
    AND (
      :error_code IS NULL OR d.final_error_code = :error_code
    )
    AND (
      :failed_from IS NULL OR d.failed_at >= :failed_from
    )
    AND (
      :failed_until IS NULL OR d.failed_at < :failed_until
    )
    AND (
      :requeued IS NULL OR (
        n.id IS NOT NULL
      ) = :requeued
    )
  ORDER BY
    d.id DESC
  LIMIT :count
), ends AS (
  SELECT
    COUNT(*) AS looked,
    MIN(id) AS id
  FROM looked_at
)
SELECT
  ends.looked,
  ends.id AS last_id,
  {DeadLetter page AS item}
FROM ends
LEFT JOIN page
  ON TRUE
ORDER BY
  page.id DESC;

-- name: read_dead_letter :one DeadLetterWithPayload
SELECT
  {DeadLetterWithPayload d}
FROM dead_letters AS d
JOIN subscriptions AS s
  ON s.id = d.subscription_id
LEFT JOIN webhook_delivery_sagas AS n
  ON n.event_id = d.event_id
  AND n.subscription_id = d.subscription_id
  AND n.requeued_from = d.id
  AND n.bucket = d.bucket
WHERE
  d.id = :id AND (
    :tenant IS NULL OR s.tenant = :tenant
  );

-- name: list_subscriptions :many Subscription
SELECT
  {Subscription s},
  {Verification v AS verification}
FROM subscriptions AS s
LEFT JOIN subscription_verifications AS v
  ON v.id = (
    SELECT
      MAX(x.id)
    FROM subscription_verifications AS x
    WHERE
      x.subscription_id = s.id
  )
WHERE
  s.id < :before_id
  AND (
    :id IS NULL OR s.id = :id
  )
  AND (
    :tenant IS NULL OR s.tenant = :tenant
  )
  AND (
    :event_type IS NULL OR s.event_type = :event_type
  )
  AND (
    :active IS NULL OR s.active = :active
  )
  AND (
    :verified IS NULL OR s.verified = :verified
  )
ORDER BY
  s.id DESC
LIMIT :count;

-- name: last_gap :one
SELECT
  s.tenant,
  s.event_type,
  CASE
    WHEN s.active AND s.verified
    THEN (
      SELECT
        h.eligible_until
      FROM subscription_eligibility AS h
      WHERE
        h.subscription_id = s.id
        AND h.pattern = s.event_type
        AND h.tenant = s.tenant
        AND h.eligible_from >= s.eligible_first
      ORDER BY
        h.eligible_from DESC
      LIMIT 1
    )
    ELSE s.eligible_until
  END AS since,
  CASE WHEN s.active AND s.verified THEN s.eligible_from END AS until,
  UTC_TIMESTAMP(6) AS now
FROM subscriptions AS s
WHERE
  s.id = :id;

-- name: missed_events :one
SELECT
  COUNT(*),
  COUNT(CASE WHEN tenant = :tenant THEN 1 END),
  MIN(CASE WHEN tenant = :tenant THEN created_at END),
  MAX(CASE WHEN tenant = :tenant THEN created_at END)
FROM (
  SELECT
    tenant,
    created_at
  FROM events
  WHERE
    event_type = :event_type AND created_at >= :since AND created_at < :until
  ORDER BY
    created_at
  LIMIT :look
) AS seen;

-- name: list_api_keys :many Key
SELECT
  {Key}
FROM api_keys
WHERE
  id < :before_id AND (
    :tenant IS NULL OR tenant = :tenant
  )
ORDER BY
  id DESC
LIMIT :count;

-- name: backlog :many
SELECT
  'deliveries' AS stage,
  'Pending' AS state,
  COUNT(*) AS waiting,
  (TIMESTAMPDIFF(MICROSECOND, MIN(next_attempt_at), UTC_TIMESTAMP(6)) / 1e6) AS oldest_seconds
FROM (
  SELECT
    next_attempt_at
  FROM webhook_delivery_sagas
  WHERE
    status = 'Pending'
  ORDER BY
    next_attempt_at
  LIMIT :most
) AS pending
UNION ALL
SELECT
  'deliveries',
  'InProgress',
  COUNT(*),
  (TIMESTAMPDIFF(MICROSECOND, MIN(next_attempt_at), UTC_TIMESTAMP(6)) / 1e6)
FROM (
  SELECT
    next_attempt_at
  FROM webhook_delivery_sagas
  WHERE
    status = 'InProgress'
  ORDER BY
    next_attempt_at
  LIMIT :most
) AS in_progress
UNION ALL
SELECT
  'deliveries',
  'PendingRetry',
  COUNT(*),
  (TIMESTAMPDIFF(MICROSECOND, MIN(next_attempt_at), UTC_TIMESTAMP(6)) / 1e6)
FROM (
  SELECT
    next_attempt_at
  FROM webhook_delivery_sagas
  WHERE
    status = 'PendingRetry'
  ORDER BY
    next_attempt_at
  LIMIT :most
) AS pending_retry
UNION ALL
SELECT
  'attempts',
  'Pending',
  COUNT(*),
  (TIMESTAMPDIFF(MICROSECOND, MIN(created_at), UTC_TIMESTAMP(6)) / 1e6)
FROM (
  SELECT
    created_at
  FROM webhook_delivery_jobs
  WHERE
    status = 'Pending'
  LIMIT :most
) AS waiting_jobs
UNION ALL
SELECT
  'attempts',
  'Leased',
  COUNT(*),
  (TIMESTAMPDIFF(MICROSECOND, MIN(created_at), UTC_TIMESTAMP(6)) / 1e6)
FROM (
  SELECT
    created_at
  FROM webhook_delivery_jobs
  WHERE
    status = 'Leased'
  LIMIT :most
) AS leased_jobs
UNION ALL
SELECT
  'dead_letters',
  'kept',
  COUNT(*),
  (TIMESTAMPDIFF(MICROSECOND, MIN(failed_at), UTC_TIMESTAMP(6)) / 1e6)
FROM (
  SELECT
    failed_at
  FROM dead_letters
  LIMIT :most
) AS kept;

-- name: open_dead_letters :one
SELECT
  'dead_letters' AS stage,
  'open' AS state,
  COUNT(*) AS waiting,
  (TIMESTAMPDIFF(MICROSECOND, MIN(d.failed_at), UTC_TIMESTAMP(6)) / 1e6) AS oldest_seconds
FROM (
  SELECT
    id,
    event_id,
    subscription_id,
    failed_at,
    bucket
  FROM dead_letters
  ORDER BY
    id DESC
  LIMIT :look
) AS d
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM webhook_delivery_sagas AS n
    WHERE
      n.event_id = d.event_id
      AND n.subscription_id = d.subscription_id
      AND n.requeued_from = d.id
      AND n.bucket = d.bucket
  );

-- name: system_figures :one
SELECT
  figures,
  (TIMESTAMPDIFF(MICROSECOND, counted_at, UTC_TIMESTAMP(6)) / 1e6) AS age_seconds
FROM system_figures
WHERE
  name = 'backlog';

-- name: processes :many
SELECT
  process_id,
  component,
  host,
  pid,
  version,
  address,
  since,
  heartbeat_at,
  step_at,
  trouble,
  (TIMESTAMPDIFF(MICROSECOND, heartbeat_at, UTC_TIMESTAMP(6)) / 1e6) AS silent_seconds
FROM processes
ORDER BY
  since,
  process_id,
  component
LIMIT :most;
