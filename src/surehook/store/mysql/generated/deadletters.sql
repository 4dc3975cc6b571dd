-- Written by `make generate` from store/postgres/deadletters.sql; do not edit.

-- name: create_cursor :none
INSERT INTO dead_letter_cursor (
  bucket
)
VALUES
  (:bucket);

-- name: read_cursor :one
SELECT
  swept_until,
  swept_until > UTC_TIMESTAMP(6)
  OR rewalked_at > UTC_TIMESTAMP(6)
  OR rewalked_at < UTC_TIMESTAMP(6) - INTERVAL :rewalk_seconds SECOND AS rewalk,
  UTC_TIMESTAMP(6) AS now
FROM dead_letter_cursor
WHERE
  bucket = :bucket;

-- name: save_cursor :none
UPDATE dead_letter_cursor SET swept_until = :swept_until, rewalked_at = CASE WHEN :rewalked THEN UTC_TIMESTAMP(6) ELSE rewalked_at END
WHERE
  bucket = :bucket;

-- name: find_dead_letters :many
WITH looked_at AS (
  SELECT
    id,
    event_id,
    subscription_id,
    final_error_code,
    failed_at,
    bucket
  FROM dead_letters FORCE INDEX (PRIMARY)
  WHERE
    bucket = :bucket AND id > :after_id
  ORDER BY
    id
  LIMIT :count
), fitting AS (
  SELECT
    d.id
  FROM looked_at AS d
  JOIN subscriptions AS s
    ON s.id = d.subscription_id
  JOIN events AS e
    ON e.id = d.event_id AND e.bucket = d.bucket
  WHERE
    (
      :tenant IS NULL OR s.tenant = :tenant
    )
    AND (
      :subscription_id IS NULL OR d.subscription_id = :subscription_id
    )
    AND (
      :event_type IS NULL OR e.event_type = :event_type
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
    AND NOT EXISTS(
      SELECT
        1
      FROM webhook_delivery_sagas AS n
      WHERE
        n.event_id = d.event_id
        AND n.subscription_id = d.subscription_id
        AND n.requeued_from = d.id
        AND n.bucket = :bucket
    )
)
SELECT
  last.id AS last_id,
  fitting.id
FROM (
  SELECT
    MAX(id) AS id
  FROM looked_at
) AS last
LEFT JOIN fitting
  ON TRUE
ORDER BY
  fitting.id;

-- name: requeued :many
SELECT
  d.id,
  d.event_id,
  n.id AS saga_id,
  s.active AND s.verified AS deliverable
FROM dead_letters AS d
JOIN subscriptions AS s
  ON s.id = d.subscription_id
LEFT JOIN webhook_delivery_sagas AS n
  ON n.event_id = d.event_id
  AND n.subscription_id = d.subscription_id
  AND n.requeued_from = d.id
  AND n.bucket = d.bucket
WHERE
  d.bucket = :bucket AND d.id IN :dead_letter_ids
ORDER BY
  d.id;
